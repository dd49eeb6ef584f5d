/* Three model hosts in one thread: as little CPU as a host can cost, so that a busy core is the proxy's.
 *
 * host DIRECTORY: listens on three free loopback ports and prints them. Answers come from the files of answers.py: GET
 * gets `get`, a request with "stream":true gets `stream-00` and on, one write each, any other gets `json`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HOSTS = 3, PARTS_MAX = 99, EVENTS = 256, REQUEST_MAX = 1 << 20 };

struct answer { char *data; size_t size; };
struct peer { int fd; int is_listener; size_t used; size_t room; char *data; };

static struct answer json, get, parts[PARTS_MAX];
static int part_count, poller;

static void die(const char *what) { perror(what); exit(1); }

static int load(const char *directory, const char *name, struct answer *answer) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    answer->data = malloc(1 << 16);
    answer->size = fread(answer->data, 1, 1 << 16, file);
    fclose(file);
    return 1;
}

static void watch(int fd, int is_listener) {
    struct peer *peer = calloc(1, sizeof *peer);
    peer->fd = fd;
    peer->is_listener = is_listener;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static void listen_on_a_free_port(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024)) die("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    watch(fd, 1);
}

/* The bytes of the first whole request in the buffer, or 0. */
static size_t whole(struct peer *peer, size_t *head_size) {
    char *end = memmem(peer->data, peer->used, "\r\n\r\n", 4);
    if (!end) return 0;
    *head_size = end + 4 - peer->data;
    *end = 0;
    char *length = strcasestr(peer->data, "\r\ncontent-length:");
    char *chunked = length ? NULL : strcasestr(peer->data, "\r\ntransfer-encoding:");
    *end = '\r';
    if (length) {
        size_t size = *head_size + strtoul(length + 17, NULL, 10);
        return peer->used >= size ? size : 0;
    }
    if (!chunked) return *head_size;
    char *last = memmem(peer->data + *head_size - 2, peer->used - *head_size + 2, "\r\n0\r\n\r\n", 7);
    return last ? (size_t)(last + 7 - peer->data) : 0;
}

/* An answer fits a socket's buffer many times over, so a short write is a client that has gone. */
static int put(struct peer *peer, struct answer *answer) {
    return send(peer->fd, answer->data, answer->size, MSG_NOSIGNAL) == (ssize_t)answer->size;
}

static int is_stream(const char *data, size_t size) {
    return memmem(data, size, "\"stream\":true", 13) || memmem(data, size, "\"stream\": true", 14);
}

static int serve(struct peer *peer) {
    if (peer->room - peer->used < 4096) {
        peer->room = peer->room ? 2 * peer->room : 1 << 16;
        if (peer->room > REQUEST_MAX || !(peer->data = realloc(peer->data, peer->room))) return 0;
    }
    ssize_t got = recv(peer->fd, peer->data + peer->used, peer->room - peer->used, 0);
    if (got <= 0) return 0;
    peer->used += got;
    size_t size, head_size;
    while ((size = whole(peer, &head_size))) {
        if (!memcmp(peer->data, "GET ", 4)) {
            if (!put(peer, &get)) return 0;
        } else if (is_stream(peer->data + head_size, size - head_size)) {
            for (int i = 0; i < part_count; i++)
                if (!put(peer, &parts[i])) return 0;
        } else if (!put(peer, &json)) return 0;
        memmove(peer->data, peer->data + size, peer->used -= size);
    }
    return 1;
}

static void handle(struct peer *peer) {
    if (peer->is_listener) {
        int fd = accept4(peer->fd, NULL, NULL, SOCK_NONBLOCK), on = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(fd, 0);
    } else if (!serve(peer)) {
        close(peer->fd);
        free(peer->data);
        free(peer);
    }
}

int main(int count, char **arguments) {
    if (count != 2 || !load(arguments[1], "json", &json) || !load(arguments[1], "get", &get)) die("host DIRECTORY");
    for (char name[32]; part_count < PARTS_MAX; part_count++) {
        snprintf(name, sizeof name, "stream-%02d", part_count);
        if (!load(arguments[1], name, &parts[part_count])) break;
    }
    if ((poller = epoll_create1(0)) < 0) die("epoll_create1");
    for (int i = 0; i < HOSTS; i++) listen_on_a_free_port();
    fflush(stdout);
    struct epoll_event events[EVENTS];
    for (;;) {
        int ready = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) handle(events[i].data.ptr);
    }
}

"""One pass over a log: groups at each PrefixLength, how bodies are written, and the last requests into the spool.

What it keeps does not grow with the log; the bounds are where the sketches and the spool are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmroute.advise import forms
from warmroute.advise.entry import BadLine, Entry
from warmroute.advise.log import Log
from warmroute.advise.serialisation import Examiner
from warmroute.advise.sketches import Groups
from warmroute.advise.spool import Kept, Spool
from warmroute.advise.trials import Group, same_groups
from warmroute.faults import Fault


@dataclass(frozen=True, slots=True)
class How:
    """How lines are to be read. ``form`` may be auto: the first line that is a request tells."""

    form: str
    members: forms.Members
    output_tokens: int
    skip_bad: bool


_OWN = {
    "mooncake": "its lines have members of their own",
    "chat": "the id of a chat is its body's prompt_cache_key",
    "text": "the id of a chat is its body's prompt_cache_key",
}


class Intake:
    """Takes a log in, once."""

    def __init__(self, spool: Spool, lengths: Sequence[int], how: How) -> None:
        self.form = how.form
        self.requests = self.skipped = self.without_key = 0
        self.writing = Examiner()
        self._spool, self._lengths, self._how = spool, tuple(lengths), how
        self._sketches = [Groups() for _ in lengths]
        self._reader: forms.Reader | None = None if how.form == "auto" else self._reader_of(how.form)

    def take(self, log: Log, moved: Callable[[int], None]) -> None:
        """Read all of ``log``; ``moved`` gets the position after each line. Raises Fault."""
        for number, line in log.lines():
            try:
                entry = self._read(line)
            except BadLine as error:
                if not self._how.skip_bad:
                    raise Fault(f"line {number} of {log.name}: {error} (--skip-bad goes on without it)") from None
                self.skipped += 1
                continue
            finally:
                moved(log.position())
            self._add(number, entry)
        if not self.requests:
            raise Fault(f"{log.name} has no requests" + (f", {self.skipped:,} lines are none" if self.skipped else ""))

    def groups(self) -> list[Group]:
        """Return the groups at each length, equal ones together."""
        largest = [sketch.largest_share for sketch in self._sketches]
        exact = [sketch.is_exact for sketch in self._sketches]
        return same_groups(self._lengths, [sketch.number for sketch in self._sketches], largest, exact)

    def alone(self) -> dict[int, float]:
        """Return PrefixLength -> share of its groups with one request."""
        return {length: sketch.alone for length, sketch in zip(self._lengths, self._sketches, strict=True)}

    def _read(self, line: bytes) -> Entry:
        if self._reader is None:
            self._reader = self._reader_of(forms.detect(line, self._how.members))
        return self._reader.read(line)

    def _reader_of(self, form: str) -> forms.Reader:
        unused = _unused(form, self._how.members)
        if unused:
            raise Fault(f"{' and '.join(unused)} cannot be used with --format {form}: {_OWN[form]}")
        self.form = form
        return forms.Reader(form, self._how.members, self._how.output_tokens)

    def _add(self, number: int, entry: Entry) -> None:
        self.requests += 1
        keys = [key for length in self._lengths if (key := entry.key(length)) is not None]
        for sketch, key in zip(self._sketches, keys, strict=False):
            sketch.add(key)
        self.without_key += not keys
        if entry.body:
            self.writing.add(number, entry.body)
        self._spool.add(entry.at, Kept(entry.prompt_tokens, entry.output_tokens, keys, entry.blocks))


def _unused(form: str, members: forms.Members) -> list[str]:
    """Return the options that mean nothing for a form."""
    given = {"--body": members.body, "--time": members.time, "--id": members.isolation}
    meant = {"native": given.keys(), "mooncake": set[str]()}.get(form, {"--body", "--time"})
    return [name for name, member in given.items() if member is not None and name not in meant]

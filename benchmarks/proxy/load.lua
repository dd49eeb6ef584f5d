-- One client of wrk: chat requests that share 8 prefixes, each with a turn of its own; or whole requests from a file,
-- over and over. Told by the environment; see load.py.
local function from_file(path)
  local requests, at = {}, 0
  local file = io.open(path, "rb")
  while true do
    local size = file:read("*n")
    if not size then break end
    file:read(1)
    requests[#requests + 1] = file:read(size)
  end
  file:close()
  return function()
    at = at % #requests + 1
    return requests[at]
  end
end

local function from_parts()
  local size = tonumber(os.getenv("BENCH_PROMPT_BYTES"))
  local turn = tonumber(os.getenv("BENCH_FIRST_TURN"))
  local head = "POST " .. os.getenv("BENCH_TARGET") .. " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    .. os.getenv("BENCH_HEADERS") .. "Content-Length: "
  local prefixes = {}
  for i = 1, 8 do
    prefixes[i] = os.getenv("BENCH_OPENING") .. string.rep(string.char(96 + i), size)
      .. '"},{"role":"user","content":"turn '
  end
  return function()
    turn = turn + 1
    local body = prefixes[turn % 8 + 1] .. turn .. '"}]}'
    return head .. #body .. "\r\n\r\n" .. body
  end
end

local signed = os.getenv("BENCH_SIGNED")
request = signed and from_file(signed) or from_parts()

done = function(summary, latency, requests)
  local errors, seen = summary.errors, {}
  for i = 1, #latency do
    local value, count = latency(i)
    seen[i] = string.format("[%d,%d]", value, count)
  end
  io.write(string.format(
    '\nRESULT {"requests":%d,"bytes":%d,"seconds":%.6f,"failed":%d,"latencies":[%s]}\n',
    summary.requests, summary.bytes, summary.duration / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout, table.concat(seen, ",")))
end

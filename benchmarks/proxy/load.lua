-- One client of wrk: chat requests that share 8 prefixes, each with a turn of its own. Told by the environment; see load.py.
local target = os.getenv("BENCH_TARGET")
local opening = os.getenv("BENCH_OPENING")
local size = tonumber(os.getenv("BENCH_PROMPT_BYTES"))
local turn = tonumber(os.getenv("BENCH_FIRST_TURN"))
local head = "POST " .. target .. " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
  .. os.getenv("BENCH_HEADERS") .. "Content-Length: "
local prefixes = {}
for i = 1, 8 do prefixes[i] = opening .. string.rep(string.char(96 + i), size) .. '"},{"role":"user","content":"turn ' end

request = function()
  turn = turn + 1
  local body = prefixes[turn % 8 + 1] .. turn .. '"}]}'
  return head .. #body .. "\r\n\r\n" .. body
end

done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"bytes":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,"failed":%d}\n',
    summary.requests, summary.bytes, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end

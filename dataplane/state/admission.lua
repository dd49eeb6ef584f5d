-- Admit requests, count and release them, for one endpoint, in one atomic step.
-- KEYS   1 load: instance -> in flight; 2 ledger: worker/instance -> that worker's share, worker -> last sequence;
--        3 leases: worker -> end of lease, ms of this clock
-- ARGV   1 msgpack {worker, sequence, lease ms, renew, held or nil, {instance, delta, ...}, {admit, ...}}
--        admit: {threshold (0 = fewest in flight), dice, complete (1 = all instances are listed), instance, ...}
-- Result {status, corrections, live workers, position, outcome, ...two per admit..., then when renewing: instance, count, ...}
--        status 0 done, 1 stale (an earlier sequence: nothing was done), 2 restate (no lease: nothing was done).
--        position -1: the list is not complete, and all that it has are at the threshold or (fewest) busy.
-- Cost   O(instances tried) per admit, O(log workers) per call; a lapsed or restating worker costs one pass of the ledger.
local call = redis.call
local load_key, ledger_key, leases_key = KEYS[1], KEYS[2], KEYS[3]
local worker, sequence, lease, renew, held, deltas, admits = unpack(cmsgpack.unpack(ARGV[1]), 1, 7)
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local corrections = 0
local counts = {}
local created = false

local function count(instance)
  local known = counts[instance]
  if not known then
    known = tonumber(call('HGET', load_key, instance) or 0)
    counts[instance] = known
  end
  return known
end

-- Read the counts of all instances of an admit in one go: a call into Redis costs more than all the rest.
local function count_all(admit)
  local unknown = {}
  for i = 4, #admit do
    if not counts[admit[i]] then unknown[#unknown + 1] = admit[i] end
  end
  for first = 1, #unknown, 1000 do
    local last = math.min(first + 999, #unknown)
    local found = call('HMGET', load_key, unpack(unknown, first, last))
    for i = first, last do counts[unknown[i]] = tonumber(found[i - first + 1] or 0) end
  end
end

-- Add delta to the worker's share and to the load. A share never falls below zero; what was asked beyond is a correction.
local function add(who, instance, delta)
  if delta == 0 then return end
  local field = who .. '/' .. instance
  local share = call('HINCRBY', ledger_key, field, delta)
  if share <= 0 then call('HDEL', ledger_key, field) end
  if share < 0 then
    corrections = corrections - share
    delta = delta - share
    if delta == 0 then return end
  end
  local total = call('HINCRBY', load_key, instance, delta)
  -- The key may be a new one, without an end of life.
  if total == delta then created = true end
  if total <= 0 then call('HDEL', load_key, instance) end
  if total < 0 then
    corrections = corrections - total
    total = 0
  end
  counts[instance] = total
end

local function strike(who)
  local prefix = who .. '/'
  local fields = call('HGETALL', ledger_key)
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, #prefix) == prefix then
      add(who, tonumber(string.sub(fields[i], #prefix + 1)), -tonumber(fields[i + 1]))
    end
  end
  call('HDEL', ledger_key, who)
end

if sequence <= tonumber(call('HGET', ledger_key, worker) or -1) then return {1, 0, 0} end
-- The first write is one that a full server refuses: either all of the script is done or nothing.
local had_lease = call('ZADD', leases_key, now + lease, worker) == 0
if not held and not had_lease then
  call('ZREM', leases_key, worker)
  return {2, 0, 0}
end
if held then strike(worker) end
for _, gone in ipairs(call('ZRANGEBYSCORE', leases_key, '-inf', now)) do
  strike(gone)
  call('ZREM', leases_key, gone)
end
call('HSET', ledger_key, worker, sequence)
for i = 1, #(held or {}), 2 do add(worker, held[i], held[i + 1]) end
for i = 1, #deltas, 2 do add(worker, deltas[i], deltas[i + 1]) end

local function least(admit)
  count_all(admit)
  local fewest, tied = nil, {}
  for i = 4, #admit do
    local c = count(admit[i])
    if not fewest or c < fewest then fewest, tied = c, {i} elseif c == fewest then tied[#tied + 1] = i end
  end
  -- Nobody has less than none; with more, one that is not listed may have less.
  if fewest > 0 and admit[3] == 0 then return nil end
  return tied[admit[2] % #tied + 1], 3
end

-- The rule of dataplane/routing/admission.py, pick.
local function pick(admit)
  local threshold = admit[1]
  local home = count(admit[4])
  if home < threshold then return 4, 0 end
  local free, fewest, total, n = nil, nil, 0, #admit - 3
  for i = 4, #admit do
    local c = count(admit[i])
    total = total + c
    if c < threshold and (not free or c < fewest) then free, fewest = i, c end
  end
  if free then return free, 1 end
  -- All listed are at the threshold; others may not be: the caller lists all.
  if admit[3] == 0 then return nil end
  if 4 * n * home <= 5 * total then return 4, 2 end
  for i = 5, #admit do
    if n * count(admit[i]) <= total then return i, 2 end
  end
end

local result = {0, 0, 0}
local admitted = {}
for _, admit in ipairs(admits) do
  local position, outcome
  if admit[1] == 0 then position, outcome = least(admit) else position, outcome = pick(admit) end
  if position then
    local instance = admit[position]
    counts[instance] = count(instance) + 1
    admitted[instance] = (admitted[instance] or 0) + 1
    result[#result + 1] = position - 4
    result[#result + 1] = outcome
  else
    result[#result + 1] = -1
    result[#result + 1] = 2
  end
end
for instance, number in pairs(admitted) do add(worker, instance, number) end
result[2] = corrections
-- An empty hash is no key and forgets its end of life.
if created then call('PEXPIRE', load_key, lease * 4) end
if renew == 1 then
  -- Keys outlive every lease that they record and no more: nothing of a deleted endpoint stays behind.
  for _, key in ipairs(KEYS) do call('PEXPIRE', key, lease * 4) end
  result[3] = call('ZCARD', leases_key)
  local all = call('HGETALL', load_key)
  for i = 1, #all do result[#result + 1] = tonumber(all[i]) end
end
return result

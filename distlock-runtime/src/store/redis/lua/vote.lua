-- One of several independent servers says whether a lock may have its keys here, under a fencing number that the client
-- proposes.
--
-- For each key, as in queue.lua, and then
-- KEYS[i + 3]   burial of the token
-- KEYS[i + 4]   fencing counter
--
-- KEYS[#KEYS]   epoch; see epoch.lua
--
-- ARGV[1]       token
-- ARGV[2]       expiry in milliseconds
-- ARGV[3]       "<host>/<pid> <function>"
-- ARGV[4]       the proposed number
-- ARGV[5]       how many numbers to reserve from there
-- ARGV[6]       token of this client's round before, or ""
-- ARGV[7]       milliseconds to abstain after a loss of memory; 0 does not
-- ARGV[8]       name of the client's process in a line
-- ARGV[9]       how long to keep its place in line without another question, in milliseconds; 0 for none
-- ARGV[10]      its ticket: the same on all servers
-- ARGV[11]      its channel, or "-"
--
-- Result        1 granted
--               {'held', place, milliseconds left, value, now}
--               {'stale', number to propose instead}
--               {'abstains', milliseconds left}
--               {'dead'}
--               {'foreign', place, what}
--
-- All keys or none. A number is accepted only above all that were accepted here before: two majorities share a server, so
-- no number is granted twice and a later grant has the larger one. Harmless when repeated.
--
-- A place in line gives no right, for each server has a line of its own: it only says who is told when the key is free.

local COMPANIONS = 5

-- How far the clocks of clients and servers may differ, in microseconds: so much above its clock begins a counter whose
-- past is not known.
local SKEW = 60000000

-- How long before its clock a counter begins that is new: a proposal is older than its arrival.
local TRANSIT = 1000000

-- A client whose clock is further ahead than this is told what to propose, so that it does not carry the counter away.
local AHEAD = 3600000000

local token, previous = ARGV[1], ARGV[6]
local proposed, last = tonumber(ARGV[4]), tonumber(ARGV[4]) + tonumber(ARGV[5]) - 1
local quarantine = tonumber(ARGV[7]) * 1000

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local floor = now - TRANSIT
local epoch
if quarantine > 0 then
  local again
  epoch, again = epoch_at(KEYS[#KEYS])
  -- One in the future is that of a clock which was set back.
  if not epoch or epoch > now then
    begin_epoch(KEYS[#KEYS], now, again)
    epoch = now
  end
  if now < epoch + quarantine then
    return {'abstains', math.ceil((epoch + quarantine - now) / 1000)}
  end
  floor = epoch + SKEW
end

-- What stands under the keys: true where it is this client's own.
local own = {}
local blocked, granted = nil, 0
for i = 1, #KEYS - 1, COMPANIONS do
  if redis.call('EXISTS', KEYS[i + 3]) == 1 then
    return {'dead'}
  end
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' then
    return string.find(held.err, 'WRONGTYPE', 1, true) and {'foreign', (i - 1) / COMPANIONS, 'type'} or held
  end
  if held then
    local owner = string.sub(held, 1, 36)
    if owner == token then
      own[i] = true
      if tonumber(string.match(held, '^%S+ (%d+)')) == proposed then
        granted = granted + 1
      end
    elseif owner == previous then
      own[i] = true
    else
      local left = redis.call('PTTL', KEYS[i])
      if left < 0 then
        return {'foreign', (i - 1) / COMPANIONS, 'expiry'}
      end
      blocked = blocked or {'held', (i - 1) / COMPANIONS, left, held, string.format('%.0f', now)}
    end
  end
end
if blocked then
  for i in pairs(own) do
    redis.call('DEL', KEYS[i])
  end
  local life = tonumber(ARGV[9])
  if life > 0 then
    local entry = string.format('%.0f', math.floor(now / 1000) + life) .. ' 0 ' .. ARGV[11]
    for i = 1, #KEYS - 1, COMPANIONS do
      -- A line that cannot be written keeps nobody from asking.
      redis.pcall('ZADD', KEYS[i + 1], ARGV[10], ARGV[8])
      redis.pcall('HSET', KEYS[i + 2], ARGV[8], entry)
      if redis.call('PTTL', KEYS[i + 1]) < life then
        redis.call('PEXPIRE', KEYS[i + 1], life)
        redis.call('PEXPIRE', KEYS[i + 2], life)
      end
    end
  end
  return blocked
end
if granted * COMPANIONS == #KEYS - 1 then
  -- A copy of what was granted before.
  for i = 1, #KEYS - 1, COMPANIONS do
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
      redis.call('PEXPIRE', KEYS[i], ARGV[2])
    end
  end
  return 1
end

local highest = floor
for i = 1, #KEYS - 1, COMPANIONS do
  local counter = redis.pcall('GET', KEYS[i + 4])
  local number = floor
  if counter then
    number = type(counter) == 'string' and tonumber(counter)
    if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE', 1, true) then
      return counter
    end
    if not number or number < 0 or number + last - proposed >= 9007199254740991 or number % 1 ~= 0 then
      return {'foreign', (i - 1) / COMPANIONS, 'counter'}
    end
  elseif proposed <= number then
    -- It begins here: the clock goes on while the client comes again.
    redis.call('SET', KEYS[i + 4], string.format('%.0f', number))
  end
  highest = math.max(highest, number)
end
local next = nil
if proposed <= highest then
  next = highest + 1
elseif proposed > math.max(highest, now) + AHEAD then
  next = math.max(highest + 1, now)
end
if next then
  return {'stale', string.format('%.0f', next)}
end
if epoch == 0 then
  -- From now on there is something that it could forget.
  begin_epoch(KEYS[#KEYS], 1)
end
for i = 1, #KEYS - 1, COMPANIONS do
  redis.call('SET', KEYS[i + 4], string.format('%.0f', last))
end
local value = token .. string.format(' %.0f ', proposed) .. ARGV[3] .. string.format(' %.0f', now)
for i = 1, #KEYS - 1, COMPANIONS do
  redis.call('SET', KEYS[i], value, 'PX', ARGV[2])
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    -- Nothing may fail any more: the lock is granted.
    redis.pcall('ZREM', KEYS[i + 1], ARGV[8])
    redis.pcall('HDEL', KEYS[i + 2], ARGV[8])
  end
end
return 1

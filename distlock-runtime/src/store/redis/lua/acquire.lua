-- Takes a lock key if it is free, and says who holds it if not.
--
-- KEYS[1]  lock key           "<token> <fencing token> <host>/<pid> <function> <since, Unix microseconds>"
-- KEYS[2]  fencing counter    one per namespace, without expiry
-- KEYS[3]  burial of ARGV[1]  present: a release of this token was sent, the token is dead
-- ARGV[1]  token              36 characters
-- ARGV[2]  expiry in milliseconds
-- ARGV[3]  "<host>/<pid> <function>"
--
-- Result   {"granted", fencing token} | {"held", milliseconds left, value, server time in microseconds}
--          | {"dead"} | {"foreign", "type" | "expiry" | "counter"}
--
-- Atomic as every script. A repeat for the holder's own token is granted again with the same fencing token, and the key
-- then lives at least a full expiry from now.

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then
    return {'foreign', 'type'}
  end
  return held
end

if held then
  local left = redis.call('PTTL', KEYS[1])
  if string.sub(held, 1, 36) == ARGV[1] then
    if left < tonumber(ARGV[2]) then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
    end
    return {'granted', string.match(held, '^%S+ (%d+)')}
  end
  if left < 0 then
    return {'foreign', 'expiry'}
  end
  local time = redis.call('TIME')
  return {'held', left, held, string.format('%.0f', time[1] * 1000000 + time[2])}
end

if redis.call('EXISTS', KEYS[3]) == 1 then
  return {'dead'}
end

-- Lua numbers are doubles: exact below 2^53, which microseconds reach in the year 2255.
local counter = redis.pcall('GET', KEYS[2])
local last = 0
if counter then
  if type(counter) == 'table' then
    if string.find(counter.err, 'WRONGTYPE', 1, true) then
      return {'foreign', 'counter'}
    end
    return counter
  end
  last = tonumber(counter)
  if not last or last < 0 or last >= 9007199254740991 or last % 1 ~= 0 then
    return {'foreign', 'counter'}
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fencing = string.format('%.0f', math.max(last + 1, now))
redis.call('SET', KEYS[2], fencing)
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. fencing .. ' ' .. ARGV[3] .. ' ' .. string.format('%.0f', now), 'PX', ARGV[2])
return {'granted', fencing}

-- Gives a lock key back if it belongs to the token, and buries the token where a copy of its acquisition may be late.
--
-- KEYS[1]  lock key
-- KEYS[2]  burial of ARGV[1]
-- ARGV[1]  token
-- ARGV[2]  milliseconds to keep the key taken, owned by nobody; 0 deletes it
-- ARGV[3]  milliseconds to bury the token; 0 does not
--
-- Result   1 given back, 0 absent, -1 somebody else's
--
-- Atomic, and harmless when repeated. The first write of each branch needs no memory (DEL, PEXPIRE): a server that is
-- out of memory refuses a script only at a first write that needs some.

local held = redis.pcall('GET', KEYS[1])
local answer = 0
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  answer = -1
elseif held then
  if string.sub(held, 1, 36) ~= ARGV[1] then
    answer = -1
  else
    answer = 1
    if ARGV[2] == '0' then
      redis.call('DEL', KEYS[1])
    else
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      redis.call('SET', KEYS[1], '00000000-0000-0000-0000-000000000000' .. string.sub(held, 37), 'KEEPTTL')
    end
  end
end
if ARGV[3] ~= '0' then
  redis.call('DEL', KEYS[2])
  redis.call('SET', KEYS[2], '', 'PX', ARGV[3])
end
return answer

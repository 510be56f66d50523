-- Gives the keys of a lock back that belong to the token, takes its entries out of the lines, and buries the token where a
-- copy of its acquisition may be late.
--
-- For each key, as in queue.lua, and then
-- KEYS[i + 3]  burial of ARGV[1]
--
-- ARGV[1]  token
-- ARGV[2]  milliseconds to keep the keys taken, owned by nobody; 0 deletes them
-- ARGV[3]  milliseconds to bury the token; 0 does not
--
-- Result   1 all given back, 0 one was absent, -1 one was somebody else's
--
-- Atomic, and harmless when repeated. The first write of each branch needs no memory (DEL, PEXPIRE, ZREM): a server that
-- is out of memory refuses a script only at a first write that needs some. A line that cannot be read keeps no lock.

local COMPANIONS = 4

local answer = 1
for i = 1, #KEYS, COMPANIONS do
  local held = redis.pcall('GET', KEYS[i])
  local free = not held
  if type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then
      return held
    end
    answer = -1
  elseif not held then
    answer = math.min(answer, 0)
  elseif string.sub(held, 1, 36) ~= ARGV[1] then
    answer = -1
  elseif ARGV[2] == '0' then
    redis.call('DEL', KEYS[i])
    free = true
  else
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
    redis.call('SET', KEYS[i], '00000000-0000-0000-0000-000000000000' .. string.sub(held, 37), 'KEEPTTL')
  end
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    pcall(function()
      leave(i, ARGV[1])
      if free then
        serve(i)
      end
    end)
  end
  if ARGV[3] ~= '0' then
    redis.call('DEL', KEYS[i + 3])
    redis.call('SET', KEYS[i + 3], '', 'PX', ARGV[3])
  end
end
return answer

-- The waiting line of a key; stands before the scripts that need it.
--
-- Each key of a lock comes with its companions, `i` being the place of the first:
-- KEYS[i]      lock key
-- KEYS[i + 1]  queue      sorted set: token -> ticket, in order of arrival
-- KEYS[i + 2]  waiters    hash: token -> "<end of life, milliseconds> <1 if told of its turn> <channel, or ->"
--
-- An entry lives from one question of its waiter to the next few. It dies of itself, in the server's time.

-- How long a waiter has, from the message that tells it of its turn, to take the key, in milliseconds. Then the next one
-- is told, so that a frozen process does not stop the line.
local TURN = 500

-- Makes the functions below only where there is a line: most keys have none.
local function line()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]

  local function leave(i, token)
    redis.call('ZREM', KEYS[i + 1], token)
    redis.call('HDEL', KEYS[i + 2], token)
  end

  -- The first live entry: token, ticket, end of life, told, channel. Drops the dead ones before it.
  local function head(i)
    while true do
      local first = redis.call('ZRANGE', KEYS[i + 1], 0, 0, 'WITHSCORES')
      if not first[1] then
        return nil
      end
      local entry = redis.call('HGET', KEYS[i + 2], first[1])
      local life, told, channel = string.match(entry or '', '^(%d+) ([01]) (%S+)$')
      life = tonumber(life)
      if life and life > now / 1000 then
        return first[1], tonumber(first[2]), life, told, channel
      end
      leave(i, first[1])
    end
  end

  -- Tells the first live waiter of a free key that it is its turn, once. A waiter whose channel nobody listens to is
  -- dropped; one without a channel asks by itself. Gives the milliseconds until its life ends.
  local function serve(i)
    while true do
      local first, _, life, told, channel = head(i)
      if not first then
        return nil
      end
      if told == '0' and channel ~= '-' then
        -- The channel of a waiter in a Cluster has a hash tag: it is sharded, and in a slot of this node.
        local publish = string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH'
        local listeners = redis.pcall(publish, channel, KEYS[i])
        if listeners == 0 then
          leave(i, first)
          first = nil
        elseif type(listeners) == 'number' then
          life = math.min(life, math.floor(now / 1000) + TURN)
          redis.call('HSET', KEYS[i + 2], first, string.format('%.0f', life) .. ' 1 ' .. channel)
        end
      end
      if first then
        return math.max(0, life - math.floor(now / 1000))
      end
    end
  end

  return now, leave, head, serve
end


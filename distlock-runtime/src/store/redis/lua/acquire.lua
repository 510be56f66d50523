-- Takes the keys of a lock if all of them are free, and otherwise says which is not, and stands in line.
--
-- For each key, as in queue.lua, and then
-- KEYS[i + 3]  burial of ARGV[1]  present: a release of this token was sent, the token is dead
-- KEYS[i + 4]  fencing counter    one per namespace, without expiry
--
-- ARGV[1]  token              36 characters
-- ARGV[2]  expiry in milliseconds
-- ARGV[3]  "<host>/<pid> <function>"
-- ARGV[4]  how many fencing tokens to reserve for each key
-- To stand in line, also
-- ARGV[5]  life of the entry in milliseconds
-- ARGV[6]  ticket of an earlier answer, or 0
-- ARGV[7]  channel to be told on, or - to be told nothing
--
-- Result   first fencing token of the key, with the others reserved
--          | {"granted", fencing token of each key ...}, without
--          | {"held", place of the key, milliseconds to wait, value or "", server time in microseconds, ticket or 0}
--          | {"dead"} | {"foreign", place of the key, "type" | "expiry" | "counter"}
--
-- A lock key's value is "<token> <fencing token> <host>/<pid> <function> <since, Unix microseconds>".
--
-- Atomic as every script. A repeat for the holder's own token is granted again with the same fencing tokens, and the keys
-- then live at least a full expiry from now. A free key goes to the first in line; whoever is not, joins the line.

-- The common case first, and cheap: one key, and nothing there.
if #KEYS == 5 and ARGV[4] == '1' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) == 0 then
  -- As texts of 16 digits, in which microseconds are until the year 2286, two numbers compare like texts.
  local time = redis.call('TIME')
  local first = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
  local last = redis.pcall('SET', KEYS[5], first, 'GET')
  if not last or (type(last) == 'string' and #last == 16 and last < first) then
    redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. first .. ' ' .. ARGV[3] .. ' ' .. first, 'PX', ARGV[2])
    return tonumber(first)
  end
  if type(last) == 'string' then
    redis.call('SET', KEYS[5], last)
  end
end

local COMPANIONS = 5

-- How far ahead of the clock the counter may be, in microseconds, for tokens that may never be used: so much lower a server
-- could begin again that has lost its data.
local AHEAD = 1000000

local token = ARGV[1]
local keys = #KEYS / COMPANIONS

local untouched = true
for i = 1, #KEYS, COMPANIONS do
  untouched = untouched and redis.call('EXISTS', KEYS[i], KEYS[i + 1], KEYS[i + 3]) == 0
end

-- The fencing tokens of the keys that the token has already.
local own = {}
local queued = false
if not untouched then
  local owned, blocked = 0, nil
  for i = 1, #KEYS, COMPANIONS do
    local held = redis.pcall('GET', KEYS[i])
    if type(held) == 'table' then
      return string.find(held.err, 'WRONGTYPE', 1, true) and {'foreign', (i - 1) / COMPANIONS, 'type'} or held
    end
    if held then
      local left = redis.call('PTTL', KEYS[i])
      if string.sub(held, 1, 36) == token then
        own[i], owned = tonumber(string.match(held, '^%S+ (%d+)')), owned + 1
        if left < tonumber(ARGV[2]) then
          redis.call('PEXPIRE', KEYS[i], ARGV[2])
        end
      elseif left < 0 then
        return {'foreign', (i - 1) / COMPANIONS, 'expiry'}
      else
        own[i] = false
        blocked = blocked or {i, left, held}
      end
    end
  end
  if owned < keys then
    local now, leave, head, serve = line()
    local ticket = tonumber(ARGV[6] or '0')
    for i = 1, #KEYS, COMPANIONS do
      if redis.call('EXISTS', KEYS[i + 3]) == 1 then
        return {'dead'}
      end
      if ticket == 0 then
        -- The answer that gave it may be lost.
        ticket = tonumber(redis.call('ZSCORE', KEYS[i + 1], token) or '0')
      end
    end
    for i = 1, #KEYS, COMPANIONS do
      if own[i] == nil then
        local place = string.format('%.0f', ticket)
        for _, other in ipairs(ticket ~= 0 and redis.call('ZRANGE', KEYS[i + 1], place, place, 'BYSCORE') or {}) do
          if other ~= token then
            -- No two waiters of a line have the same ticket: an earlier token of this waiter left it behind.
            leave(i, other)
          end
        end
        local first, before = head(i)
        if first and first ~= token and (ticket == 0 or before < ticket) then
          blocked = blocked or {i}
        end
      end
    end
    if blocked then
      -- All or nothing: of several keys one may have gone to somebody else since they were granted.
      for i = 1, #KEYS, COMPANIONS do
        if own[i] then
          redis.call('DEL', KEYS[i])
          own[i] = nil
        end
      end
      local life = tonumber(ARGV[5] or '0')
      if life > 0 then
        if ticket == 0 then
          ticket = now
          for i = 1, #KEYS, COMPANIONS do
            local last = redis.call('ZRANGE', KEYS[i + 1], -1, -1, 'WITHSCORES')
            while last[2] and tonumber(last[2]) >= 9007199254740991 do
              -- None of ours, and no double counts on from there.
              leave(i, last[1])
              last = redis.call('ZRANGE', KEYS[i + 1], -1, -1, 'WITHSCORES')
            end
            ticket = math.max(ticket, tonumber(last[2] or '0') + 1)
          end
        end
        local entry = string.format('%.0f', math.floor(now / 1000) + life) .. ' 0 ' .. ARGV[7]
        for i = 1, #KEYS, COMPANIONS do
          redis.call('ZADD', KEYS[i + 1], string.format('%.0f', ticket), token)
          redis.call('HSET', KEYS[i + 2], token, entry)
          if redis.call('PTTL', KEYS[i + 1]) < life then
            redis.call('PEXPIRE', KEYS[i + 1], life)
            redis.call('PEXPIRE', KEYS[i + 2], life)
          end
        end
      else
        -- There is no such burial. A demoted server refuses even that, and may not say what it does not know any more.
        redis.call('DEL', KEYS[4])
      end
      for i = 1, #KEYS, COMPANIONS do
        if own[i] == nil and head(i) ~= token then
          local ends = serve(i)
          if blocked[1] == i then
            blocked[2] = ends
          end
        end
      end
      return {
        'held', (blocked[1] - 1) / COMPANIONS, blocked[2] or 0, blocked[3] or '',
        string.format('%.0f', now), string.format('%.0f', ticket),
      }
    end
    queued = ticket ~= 0
  end
end

-- Free or the token's own. The counters come first: should one be unreadable, no key is taken.
local now, since
local alone = keys > 1
for i = 1, #KEYS, COMPANIONS do
  if not own[i] then
    if not now then
      -- Lua numbers are doubles: exact below 2^53, which microseconds reach in the year 2255.
      local time = redis.call('TIME')
      now = time[1] * 1000000 + time[2]
      since = string.format('%.0f', now)
    end
    local first, reserved = now, tonumber(ARGV[4]) - 1
    local last = redis.pcall('SET', KEYS[i + 4], first + reserved, 'GET')
    if last then
      local number = type(last) == 'string' and tonumber(last)
      if not number or number < 0 or number >= 9007199254740991 or number % 1 ~= 0 then
        if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then
          return last
        end
        if type(last) == 'string' then
          redis.call('SET', KEYS[i + 4], last)
        end
        return {'foreign', (i - 1) / COMPANIONS, 'counter'}
      end
      if number >= first then
        first = number + 1
        if first > now + AHEAD then
          reserved, alone = 0, true
        end
        redis.call('SET', KEYS[i + 4], first + reserved)
      end
    end
    own[i] = -first
  end
end
if queued then
  -- After a write that needs memory: a server that has none refuses the whole script.
  for i = 1, #KEYS, COMPANIONS do
    redis.call('ZREM', KEYS[i + 1], token)
    redis.call('HDEL', KEYS[i + 2], token)
  end
end
local answer = {'granted'}
for i = 1, #KEYS, COMPANIONS do
  local fencing = own[i]
  if fencing < 0 then
    fencing = -fencing
    local text = fencing == now and since or string.format('%.0f', fencing)
    redis.call('SET', KEYS[i], token .. ' ' .. text .. ' ' .. ARGV[3] .. ' ' .. since, 'PX', ARGV[2])
  end
  if not alone then
    return fencing
  end
  answer[#answer + 1] = string.format('%.0f', fencing)
end
return answer

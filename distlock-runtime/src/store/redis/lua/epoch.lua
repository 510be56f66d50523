-- Since when a server remembers what it granted.
--
-- The key says it with the server's run: one that was started anew may come back with its epoch and without its latest
-- writes, as from a snapshot, so the epoch of another run counts for nothing.

-- Different after each start; "" of a server that does not tell.
local function run()
  return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
end

-- In microseconds; 0 if it was told that there was nothing before, and has granted nothing since; nil if it has lost its
-- memory, or is new.
local function epoch_at(key)
  local text = redis.pcall('GET', key)
  local since, of = string.match(type(text) == 'string' and text or '', '^(%d+) (%w*)$')
  return of == run() and tonumber(since) or nil
end

local function begin_epoch(key, since)
  redis.call('SET', key, string.format('%.0f ', since) .. run())
end

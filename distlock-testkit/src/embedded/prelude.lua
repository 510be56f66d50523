-- What surrounds every script: the `redis` table, protected globals, and the text of errors.
--
-- Arguments  trace    gives source and line of the script's innermost frame
--            sha1hex  hashes a string
--
-- Result     compile environment, and run(script, call, keys, arguments) -> ok, result | false, error table

local trace, sha1hex = ...
local error, getmetatable, pairs, pcall, rawget, rawset, select, setmetatable, tostring, type, xpcall =
  error, getmetatable, pairs, pcall, rawget, rawset, select, setmetatable, tostring, type, xpcall
local format, find, sub, gsub = string.format, string.find, string.sub, string.gsub

-- The command as the server executes it; set for the time of one script.
local execute

local function failure(text)
  return {err = text}
end

local function command(...)
  local count = select('#', ...)
  if count == 0 then
    return failure('ERR Please specify at least one argument for this redis.call() call')
  end
  local parts = {...}
  for i = 1, count do
    local kind = type(parts[i])
    if kind == 'number' then
      -- Not `tostring`, which keeps 14 digits.
      parts[i] = format('%.17g', parts[i])
    elseif kind ~= 'string' then
      return failure('ERR Lua redis lib command arguments must be strings or integers')
    end
  end
  return execute(parts)
end

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  pcall = command,
  call = function(...)
    local answer = command(...)
    if type(answer) == 'table' and answer.err then
      error(answer)
    end
    return answer
  end,
  log = function() end,
  sha1hex = function(...)
    if select('#', ...) ~= 1 then
      error(failure('ERR wrong number of arguments'))
    end
    return sha1hex(tostring((...)))
  end,
  status_reply = function(...)
    if select('#', ...) ~= 1 or type((...)) ~= 'string' then
      return failure('ERR wrong number or type of arguments')
    end
    return {ok = (...)}
  end,
  error_reply = function(...)
    if select('#', ...) ~= 1 or type((...)) ~= 'string' then
      return failure('ERR wrong number or type of arguments')
    end
    local text = gsub(gsub((...), '^%-', ''), '[\r\n]+$', '')
    if not find(text, ' ', 1, true) then
      text = 'ERR ' .. text
    end
    return failure(text)
  end,
}

-- A script may not leave anything behind for the next one.
local function protected(table)
  return setmetatable({}, {
    __index = table,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
  })
end

local globals = {}
for _, name in pairs({
  'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'pcall', 'rawequal', 'rawget', 'select', 'setmetatable',
  'tonumber', 'tostring', 'type', 'unpack', 'xpcall', 'collectgarbage', '_VERSION',
}) do
  globals[name] = _G[name]
end
globals.string, globals.table, globals.redis = protected(string), protected(table), protected(redis)

-- The same numbers in every run of every script.
local seed = 0
local library = {}
for name, value in pairs(math) do
  library[name] = value
end
library.randomseed = function(value) seed = value % 2147483647 end
library.random = function(low, high)
  seed = (seed * 16807 + 12345) % 2147483647
  local share = seed / 2147483647
  if not low then
    return share
  end
  if not high then
    low, high = 1, low
  end
  return low + math.floor(share * (high - low + 1))
end
globals.math = protected(library)

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = protected(globals)
globals._G = environment

-- Runs where the error was raised, so that its line can still be told.
local function handler(raised)
  if type(raised) ~= 'table' then
    raised = {err = 'ERR ' .. tostring(raised)}
  end
  local source, line = trace()
  return {err = raised.err, source = source, line = line}
end

local function run(script, call, keys, arguments)
  execute, seed = call, 0
  globals.KEYS, globals.ARGV = keys, arguments
  local ok, result = xpcall(script, handler)
  execute = nil
  return ok, result
end

return environment, run

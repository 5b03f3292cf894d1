-- One step of the order of events (event::order::store) on the keys of seed 001, which Redis does as a whole.
--
-- Redis does not undo what a script did before an error. So each part reads all that it is going to change, which fails if a
-- key holds something else, before it changes anything. Stamps are decimal texts, since numbers are exact below 2^53 only; the count
-- and the generation are below that. Before this text stand VERSION, OBJECTS_PER_STEP, EVENTS_PER_STEP, BYTES_PER_STEP,
-- COUNT_LAST, RADIX_HIGH and RADIX_LOW.

local prefix, op = ARGV[1], ARGV[2]

local function call(command, key, ...)
  local reply = redis.pcall(command, prefix .. key, ...)
  if type(reply) == 'table' and reply.err then
    error({ err = reply.err .. ' [key ' .. prefix .. key .. ']' })
  end
  return reply
end

local stored = call('HMGET', 'generation', 'version', 'number', 'replid')
if stored[1] and stored[1] ~= VERSION then
  error({ err = 'SEQCASTVERSION ' .. stored[1] })
end
local generation, count = tonumber(stored[2]), call('GET', 'next.event.id')
if count and not string.match(count, '^%d+$') then
  error({ err = 'WRONGTYPE no count [key ' .. prefix .. 'next.event.id]' })
end
count = tonumber(count or nil)
-- Another run of the server, or another server: each that becomes a primary draws a new one.
local info = redis.call('INFO', 'replication')
local _, at = string.find(info, 'master_replid:', 1, true)
local replid = string.sub(info, at + 1, at + 40)
local is_suspect = generation and (stored[3] ~= replid or not count)

-- generation * 2^38 + of, as text.
local function stamp_of(of)
  local low = generation * RADIX_LOW + of
  return string.format('%.0f%06.0f', generation * RADIX_HIGH + math.floor(low / 1e6), low % 1e6)
end

local function next_stamp()
  count = call('INCR', 'next.event.id')
  return stamp_of(count)
end

local function lost()
  return { 'lost', stored[2] }
end

local function read_mark()
  if not generation or is_suspect or COUNT_LAST < count then
    return lost()
  end
  return { 'mark', stamp_of(count) }
end

local function owner_of(object)
  local owner = call('GET', object .. ':event.worker')
  if not owner then
    return false
  end
  local token, worker = string.match(owner, '^(%d+) (.*)$')
  if not token then
    error({ err = 'WRONGTYPE no owner [key ' .. prefix .. object .. ':event.worker]' })
  end
  return worker, token
end

if op == 'read mark' then
  return read_mark()
end

if op == 'begin' then
  local found, new = ARGV[3], ARGV[4]
  if found == (stored[2] or '') and (found == '' or tonumber(found) < tonumber(new)) then
    call('HSET', 'generation', 'version', VERSION, 'number', new, 'replid', replid)
    call('SET', 'next.event.id', '0')
    stored[2], generation, count, is_suspect = new, tonumber(new), 0, false
  end
  return read_mark()
end

if op == 'show' then
  local workers, objects, wanted, seen = {}, {}, {}, {}
  for at = 4, #ARGV do
    wanted[#wanted + 1] = ARGV[at]
  end
  for _, worker in ipairs(call('SMEMBERS', 'event.workers')) do
    local key = 'event.worker:' .. worker
    local object = call('LINDEX', key .. ':object', 0)
    local lease_end = object and call('ZSCORE', 'leases', object .. '\0' .. worker)
    workers[#workers + 1] = { worker, object, lease_end, call('LLEN', key .. ':event'), call('GET', key .. ':event.id') }
    wanted[#wanted + 1] = object or nil
  end
  if tonumber(ARGV[3]) > 0 then
    for _, object in ipairs(call('LRANGE', 'objects.with.events', -tonumber(ARGV[3]), -1)) do
      wanted[#wanted + 1] = object
    end
  end
  for _, object in ipairs(wanted) do
    if not seen[object] then
      seen[object] = true
      local queued, last = call('LLEN', object .. ':events'), call('GET', object .. ':last.event.id')
      local owner = owner_of(object)
      objects[#objects + 1] = { object, queued, last, owner }
    end
  end
  local mark = generation and stamp_of(count or 0)
  return { 'shown', mark or false, is_suspect and 1 or 0, call('LLEN', 'objects.with.events'), workers, objects }
end

-- All others name the highest stamp that they have seen.
local mark_generation, mark_count = tonumber(ARGV[3]), tonumber(ARGV[4])
if not generation or is_suspect or generation ~= mark_generation or count < mark_count or COUNT_LAST < count then
  return lost()
end

if op == 'push' then
  local object = ARGV[5]
  call('STRLEN', object .. ':data')
  call('LLEN', object .. ':events')
  call('LLEN', 'objects.with.events')
  call('SET', object .. ':data', ARGV[6])
  for at = 7, #ARGV do
    call('LPUSH', object .. ':events', ARGV[at])
  end
  call('LPUSH', 'objects.with.events', object)
  return { 'pushed', stamp_of(count) }
end

local worker, session, now, lease_end = ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]
local object, token, id = ARGV[9], ARGV[10], ARGV[11]
local key_object = 'event.worker:' .. worker .. ':object'
local key_event = 'event.worker:' .. worker .. ':event'
local key_id = 'event.worker:' .. worker .. ':event.id'
local key_session = 'event.worker:' .. worker .. ':session'

local held = call('LINDEX', key_object, 0)
local opened = call('GET', key_session)

local function renew(of)
  call('ZADD', 'leases', lease_end, of .. '\0' .. worker)
end

if op == 'open' then
  call('SCARD', 'event.workers')
  call('ZCARD', 'leases')
  opened = next_stamp()
  call('SET', key_session, opened)
  call('SADD', 'event.workers', worker)
  if held then
    renew(held)
  end
  return { 'opened', opened, held }
end

if not opened then
  return { 'not held' }
elseif opened ~= session then
  return { 'superseded' }
end

local function forget(name)
  call('DEL', 'event.worker:' .. name .. ':session')
  call('SREM', 'event.workers', name)
end

local function take()
  local first = call('LINDEX', 'objects.with.events', -1)
  if not first then
    return false
  end
  owner_of(first)
  call('LLEN', first .. ':events')
  call('STRLEN', first .. ':last.event.id')
  call('ZCARD', 'leases')
  call('RPOPLPUSH', 'objects.with.events', prefix .. key_object)
  renew(first)
  return first
end

local function own(of)
  local new = next_stamp()
  call('SET', of .. ':event.worker', new .. ' ' .. worker)
  return new
end

-- The next of so many events, oldest first. They are read in parts, each as large as may be wanted by the length of those before.
local function next_of(of, queued)
  local key, events, bytes, part = of .. ':events', {}, 0, 1
  queued = math.min(queued, EVENTS_PER_STEP)
  while #events < queued and bytes < BYTES_PER_STEP do
    local some = call('LRANGE', key, -#events - math.min(part, queued - #events), -#events - 1)
    for at = #some, 1, -1 do
      if BYTES_PER_STEP <= bytes then
        break
      end
      events[#events + 1] = some[at]
      bytes = bytes + #some[at]
    end
    part = math.ceil((BYTES_PER_STEP - bytes) * #events / bytes)
  end
  return events
end

-- Moves the next of so many events to the worker, whose batch is empty, and stamps them. Adds to the answer the last id, the one before the
-- batch, and the batch.
local function draw(of, queued, last, answer)
  local events = next_of(of, queued)
  call('LPUSH', key_event, unpack(events))
  call('LTRIM', of .. ':events', 0, -#events - 1)
  count = call('INCRBY', 'next.event.id', #events)
  local new = stamp_of(count)
  call('SET', key_id, new)
  answer[#answer + 1] = new
  answer[#answer + 1] = last
  for at = 1, #events do
    answer[#answer + 1] = events[at]
  end
  return answer
end

local function drop(of)
  call('RPOP', key_object)
  call('ZREM', 'leases', of .. '\0' .. worker)
end

if op == 'take' then
  local taken = not held and take()
  return held and { 'not held' } or taken and { 'taken', taken } or { 'empty' }
end

if op == 'take over' then
  if held then
    return { 'not held' }
  end
  local first = call('ZRANGE', 'leases', 0, 0, 'WITHSCORES')
  if not first[1] or now < tonumber(first[2]) then
    return { 'none ended', first[2] or false }
  end
  local zero = string.find(first[1], '\0', 1, true)
  local of, from = string.sub(first[1], 1, zero - 1), string.sub(first[1], zero + 1)
  local theirs = 'event.worker:' .. from
  local unfinished, owner = call('GET', theirs .. ':event.id'), owner_of(of)
  call('LLEN', theirs .. ':object')
  local in_process = call('LLEN', theirs .. ':event')
  call('LLEN', key_event)
  call('STRLEN', key_id)
  call('SCARD', 'event.workers')
  call('RPOPLPUSH', theirs .. ':object', prefix .. key_object)
  if unfinished and in_process > 0 then
    call('RENAME', theirs .. ':event', prefix .. key_event)
    call('RENAME', theirs .. ':event.id', prefix .. key_id)
  end
  if owner == from then
    own(of)
  end
  call('ZREM', 'leases', first[1])
  renew(of)
  forget(from)
  return { 'taken', of }
end

if op == 'leave' then
  if held then
    return { 'not held' }
  end
  call('SCARD', 'event.workers')
  forget(worker)
  return { 'done' }
end

-- All others name the object that the worker has taken, and most of them the token by which it owns it.
local owner, owner_token
if held == object then
  owner, owner_token = owner_of(object)
end
local owns = owner == worker and owner_token == token
if held ~= object or (op ~= 'claim' and op ~= 'drop' and not owns) then
  return { 'not held' }
end

if op == 'claim' then
  local last, batch, last_of_batch = call('GET', object .. ':last.event.id'), call('LRANGE', key_event, 0, -1), call('GET', key_id)
  renew(object)
  if owner and owner ~= worker then
    return { 'owned' }
  end
  local answer = { 'claimed', own(object), last_of_batch, last }
  for at = #batch, 1, -1 do
    answer[#answer + 1] = batch[at]
  end
  return answer
end

if op == 'drop' then
  if owner == worker then
    return { 'not held' }
  end
  drop(object)
  return { 'done' }
end

if op == 'renew' then
  renew(object)
  return { 'done' }
end

local queued = call('LLEN', object .. ':events')
local in_process = call('LLEN', key_event)

if op == 'next' then
  if in_process > 0 then
    return { 'not held' }
  end
  call('STRLEN', key_id)
  local last = call('GET', object .. ':last.event.id')
  renew(object)
  if queued > 0 then
    return draw(object, queued, last, { 'next' })
  end
  call('DEL', object .. ':event.worker')
  return { 'emptied' }
end

-- What is left ends the batch in process.
if call('GET', key_id) ~= id then
  return { 'not held' }
end
call('STRLEN', object .. ':last.event.id')
renew(object)
call('DEL', key_event)
call('SET', object .. ':last.event.id', id)
if op == 'record' then
  call('DEL', key_id)
  return { 'done' }
end

if queued > 0 then
  return draw(object, queued, id, { 'advanced', object, token })
end
call('DEL', object .. ':event.worker', prefix .. key_id)
drop(object)

-- Nobody has to come for an object that has an owner or no events: its entry is taken away. Most entries are of either kind where
-- there are many of one object, so that they are read in parts that grow.
local seen, part = 0, 1
while seen < OBJECTS_PER_STEP do
  local entries = call('LRANGE', 'objects.with.events', -part, -1)
  for at = #entries, 1, -1 do
    object, seen = entries[at], seen + 1
    queued = call('LLEN', object .. ':events')
    if queued > 0 and not owner_of(object) then
      local last = call('GET', object .. ':last.event.id')
      if at < #entries then
        call('LTRIM', 'objects.with.events', 0, at - #entries - 1)
      end
      call('RPOPLPUSH', 'objects.with.events', prefix .. key_object)
      renew(object)
      return draw(object, queued, last, { 'advanced', object, own(object) })
    end
  end
  call('LTRIM', 'objects.with.events', 0, -#entries - 1)
  if #entries < part then
    return { 'empty' }
  end
  part = math.min(2 * part, OBJECTS_PER_STEP - seen)
end
return { 'paused' }

-- Dissector of seqcast datagrams for Wireshark and tshark 4.0 or later, from docs/wire.md.
--
--   wireshark -X lua_script:tools/wireshark/seqcast.lua lan.pcap
--   tshark -X lua_script:tools/wireshark/seqcast.lua -r lan.pcap -Y seqcast.run.subject
--
-- It recognizes datagrams by their first bytes, on every port. Fields have the names of `seqcast decode --json`, with
-- `seqcast.` before them. Keyed datagrams (mode 1 to 255) are dissected down to the header;
-- `seqcast decode --keys KEYLOG --write FILE` makes a capture in which they are open.

local seqcast = Proto("seqcast", "seqcast")

local MAGIC, BEACON_MAGIC, VERSION, MODE_OPEN = 0x5343, 0x5342, 1, 0
local BEACON_BYTES_MIN = 25
local HEADER_BYTES, CHECK_BYTES, RECORD_HEADER_BYTES = 36, 4, 4
local DATA, DIRECTED, CONTROL = 0, 1, 2

local KINDS = { [DATA] = "data", [DIRECTED] = "directed", [CONTROL] = "control" }
local RECORDS = {
    [0x00] = "pad", [0x01] = "run", [0x02] = "fragment", [0x40] = "heartbeat", [0x41] = "hello", [0x42] = "bye",
    [0x43] = "resend_request", [0x44] = "manifest", [0x45] = "expired", [0x48] = "interest",
    [0x49] = "interest_request", [0x4b] = "receiver_report",
}
local FLAG_STAMP, FLAG_CHAIN, FLAG_UNSEQ, FLAG_EVENT, FLAG_META, FLAG_PART = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

-- Fields -------------------------------------------------------------------------------------------------------------

local fields = {}

-- Registers the field `seqcast.NAME` with the label of its last part.
local function field(kind, name, ...)
    fields[name] = ProtoField[kind]("seqcast." .. name, name:match("[^.]*$"):gsub("_", " "), ...)
end

field("uint8", "version")
field("uint8", "mode")
field("string", "kind")
field("uint16", "group")
field("uint64", "epoch", base.HEX)
field("uint64", "number")
field("uint64", "count")
field("uint32", "uptime_ms")
field("uint64", "receiver", base.HEX)
field("uint32", "check", base.HEX)
field("bytes", "sealed")
field("string", "record")
field("uint8", "unknown_data.type", base.HEX)

for _, record in ipairs({ "run", "fragment", "manifest.datagrams" }) do
    field("string", record .. ".subject")
    field("uint64", record .. ".seq", base.HEX)
    field("uint64", record .. ".chain", base.HEX)
    field("bool", record .. ".event")
    field("uint64", record .. ".stamp_ns")
    field("uint32", record .. ".offset")
end
field("uint16", "run.count")
field("string", "run.messages.reply")
field("string", "run.messages.headers")
field("bytes", "run.messages.payload")
field("bool", "fragment.meta")
field("uint32", "fragment.index")
field("uint32", "fragment.total_bytes")
field("uint32", "fragment.chunk_offset")
field("uint32", "fragment.chunk_bytes")
field("bytes", "fragment.chunk")
field("uint16", "manifest.datagrams.count")
field("uint32", "manifest.datagrams.index")
field("uint32", "manifest.datagrams.total_bytes")
field("uint64", "manifest.first")
field("uint64", "manifest.before")

field("uint64", "hello.cookie")
field("bool", "hello.wants_reply")
for _, record in ipairs({ "heartbeat", "hello", "bye" }) do
    for _, name in ipairs({ "high", "trail", "manifest_trail" }) do
        field("uint64", record .. "." .. name)
    end
    field("uint32", record .. ".heartbeat_ms")
    field("uint32", record .. ".pub_window_ms")
    field("uint64", record .. ".directed_high")
    field("uint64", record .. ".directed_count")
    field("uint64", record .. ".directed_receiver", base.HEX)
    field("string", record .. ".name")
    field("uint64", record .. ".token")
    field("uint64", record .. ".echo")
    for _, name in ipairs({
        "missing", "repaired", "pending", "unverified", "lost_min", "lost_max", "overrun", "directed_lost",
    }) do
        field("uint64", record .. ".report." .. name)
    end
    field("uint64", record .. ".interest.version")
    field("bool", record .. ".interest.suppresses")
    field("bool", record .. ".interest.wants_confirmation")
    field("uint64", record .. ".interest_known")
    for _, stream in ipairs({ "multicast", "directed" }) do
        for _, name in ipairs({ "settled", "served", "returned" }) do
            field("uint64", record .. ".queue." .. stream .. "." .. name)
        end
    end
end

field("uint64", "resend_request.publisher", base.HEX)
field("bool", "resend_request.manifests_only")
field("bool", "resend_request.directed")
field("bool", "resend_request.unicast")
field("uint64", "expired.receiver", base.HEX)
for _, record in ipairs({ "resend_request", "expired" }) do
    field("uint64", record .. ".ranges.first")
    field("uint64", record .. ".ranges.last")
end

for _, name in ipairs({ "after", "upto", "high", "base" }) do
    field("uint64", "interest." .. name)
end
field("string", "interest.entries.pattern")
field("string", "interest.entries.glob")
field("string", "interest.entries.queue")
field("uint32", "interest.entries.count")
field("uint64", "interest_request.peer", base.HEX)
field("uint64", "interest_request.from")
field("uint64", "interest_request.base")

field("string", "beacon.group")
field("uint16", "beacon.port")
field("string", "beacon.name")

field("uint64", "receiver_report.publisher", base.HEX)
for _, name in ipairs({ "taken", "window_bytes", "awaited", "dropped" }) do
    field("uint64", "receiver_report." .. name)
end

for _, proto_field in pairs(fields) do
    table.insert(seqcast.fields, proto_field)
end

local malformed = ProtoExpert.new("seqcast.malformed", "malformed datagram", expert.group.MALFORMED, expert.severity.ERROR)
local bad_check = ProtoExpert.new("seqcast.bad_check", "wrong check value", expert.group.CHECKSUM, expert.severity.ERROR)
seqcast.experts = { malformed, bad_check }

-- Reader: a position in a range of bytes. Reading past its end raises an error, which marks the datagram. -------------

local Reader = {}
Reader.__index = Reader

local function reader(range)
    return setmetatable({ range = range, at = 0, left = range:len() }, Reader)
end

-- Wireshark has no empty ranges, so callers take at least one byte.
function Reader:take(bytes)
    if bytes == 0 then error({ malformed = "a field is empty" }) end
    if self.left < bytes then error({ malformed = "a field reaches past the end" }) end
    local taken = self.range:range(self.at, bytes)
    self.at, self.left = self.at + bytes, self.left - bytes
    return taken
end

-- Adds the number with this field to the tree and returns it. Numbers of 8 bytes are UInt64.
function Reader:add(tree, name, bytes)
    local taken = self:take(bytes)
    tree:add(fields[name], taken)
    return bytes == 8 and taken:uint64() or taken:uint()
end

-- Adds a text with a length of one byte before it, unless it is empty.
function Reader:add_text(tree, name)
    local length = self:take(1):uint()
    if length == 0 then return "" end
    local text = self:take(length)
    tree:add(fields[name], text, text:string(ENC_UTF_8))
    return text:string(ENC_UTF_8)
end

function Reader:varint()
    local value, shift = 0, 0
    for _ = 1, 4 do
        local byte = self:take(1):uint()
        value = value + (byte % 0x80) * 2 ^ shift
        if byte < 0x80 then return value end
        shift = shift + 7
    end
    error({ malformed = "a variable-length number has more than 4 bytes" })
end

function Reader:finish()
    if self.left ~= 0 then error({ malformed = self.left .. " bytes too many at the end of a record" }) end
end

local function has(flags, flag)
    return bit.band(flags, flag) ~= 0
end

-- Records ------------------------------------------------------------------------------------------------------------

-- Adds the fields with which RUN and FRAGMENT begin, and returns the subject.
local function add_start(body, tree, name, flags)
    if not has(flags, FLAG_UNSEQ) then body:add(tree, name .. ".seq", 8) end
    if has(flags, FLAG_STAMP) then
        body:add(tree, name .. ".stamp_ns", 8)
        body:add(tree, name .. ".offset", 4)
    end
    if has(flags, FLAG_CHAIN) then body:add(tree, name .. ".chain", 8) end
    tree:add(fields[name .. ".event"], has(flags, FLAG_EVENT))
    return body:add_text(tree, name .. ".subject")
end

local function add_run(body, tree, flags)
    local subject = add_start(body, tree, "run", flags)
    local count = body:add(tree, "run.count", 2)
    for index = 1, count do
        local start = body.at
        local payload_bytes = body:varint()
        local message = tree:add(seqcast, body.range:range(start), "message " .. index)
        if has(flags, FLAG_META) then
            body:add_text(message, "run.messages.reply")
            local headers_bytes = body:varint()
            if 0 < headers_bytes then message:add(fields["run.messages.headers"], body:take(headers_bytes)) end
        end
        if 0 < payload_bytes then message:add(fields["run.messages.payload"], body:take(payload_bytes)) end
        message:set_len(body.at - start)
    end
    return subject .. (count == 1 and "" or " (" .. count .. ")")
end

local function add_fragment(body, tree, flags)
    local subject = add_start(body, tree, "fragment", flags)
    tree:add(fields["fragment.meta"], has(flags, FLAG_META))
    local index = body:add(tree, "fragment.index", 4)
    body:add(tree, "fragment.total_bytes", 4)
    body:add(tree, "fragment.chunk_offset", 4)
    tree:add(fields["fragment.chunk_bytes"], body.left)
    tree:add(fields["fragment.chunk"], body:take(body.left))
    return subject .. " part " .. index
end

local function add_report(value, tree, name)
    for _, part in ipairs({ "missing", "repaired", "pending", "unverified", "lost_min", "lost_max" }) do
        value:add(tree, name .. "." .. part, 8)
    end
end

-- Functions that add the optional fields at the end of an announcement, by the type of the field.
local ANNOUNCEMENT_FIELDS = {
    [0x01] = function(value, tree, name) value:add(tree, name .. ".token", 8) end,
    [0x02] = function(value, tree, name) value:add(tree, name .. ".echo", 8) end,
    [0x03] = function(value, tree, name) add_report(value, tree, name .. ".report") end,
    [0x04] = function(value, tree, name)
        value:add(tree, name .. ".interest.version", 8)
        local flags = value:take(1):uint()
        tree:add(fields[name .. ".interest.suppresses"], has(flags, 0x01))
        tree:add(fields[name .. ".interest.wants_confirmation"], has(flags, 0x02))
    end,
    [0x05] = function(value, tree, name) value:add(tree, name .. ".interest_known", 8) end,
    [0x06] = function(value, tree, name) value:add(tree, name .. ".report.overrun", 8) end,
    [0x07] = function(value, tree, name)
        for _, stream in ipairs({ "multicast", "directed" }) do
            for _, part in ipairs({ "settled", "served", "returned" }) do
                value:add(tree, name .. ".queue." .. stream .. "." .. part, 8)
            end
        end
    end,
    [0x08] = function(value, tree, name) value:add(tree, name .. ".report.directed_lost", 8) end,
}

local function add_announcement(body, tree, name)
    local high = body:add(tree, name .. ".high", 8)
    body:add(tree, name .. ".trail", 8)
    body:add(tree, name .. ".manifest_trail", 8)
    body:add(tree, name .. ".heartbeat_ms", 4)
    body:add(tree, name .. ".pub_window_ms", 4)
    body:add(tree, name .. ".directed_high", 8)
    body:add(tree, name .. ".directed_count", 8)
    local receiver = body:take(8)
    if receiver:uint64() ~= UInt64(0) then tree:add(fields[name .. ".directed_receiver"], receiver) end
    local peer = body:add_text(tree, name .. ".name")
    while 0 < body.left do
        local add = ANNOUNCEMENT_FIELDS[body:take(1):uint()]
        local bytes = body:take(2):uint()
        if add and 0 < bytes then
            local value = reader(body:take(bytes))
            add(value, tree, name)
            value:finish()
        elseif 0 < bytes then
            body:take(bytes)
        end
    end
    return peer .. " high " .. tostring(high)
end

local function add_hello(body, tree)
    body:add(tree, "hello.cookie", 8)
    tree:add(fields["hello.wants_reply"], has(body:take(1):uint(), 0x01))
    return add_announcement(body, tree, "hello")
end

local function add_ranges(body, tree, name)
    local count = body:take(2):uint()
    for _ = 1, count do
        body:add(tree, name .. ".ranges.first", 8)
        body:add(tree, name .. ".ranges.last", 8)
    end
    return count .. (count == 1 and " range" or " ranges")
end

local function add_resend_request(body, tree, flags)
    body:add(tree, "resend_request.publisher", 8)
    tree:add(fields["resend_request.manifests_only"], has(flags, 0x01))
    tree:add(fields["resend_request.directed"], has(flags, 0x02))
    tree:add(fields["resend_request.unicast"], has(flags, 0x04))
    return add_ranges(body, tree, "resend_request")
end

local function add_expired(body, tree, flags)
    if has(flags, 0x02) then body:add(tree, "expired.receiver", 8) end
    return add_ranges(body, tree, "expired")
end

local function add_manifest(body, tree)
    local name, first = "manifest.datagrams", body:add(tree, "manifest.first", 8)
    body:add(tree, "manifest.before", 8)
    local datagrams, previous = body:take(2):uint(), nil
    for _ = 1, datagrams do
        for _ = 1, body:take(2):uint() do
            local flags = body:take(1):uint()
            local length = body:take(1):uint()
            -- An entry without a subject has that of the entry before.
            if 0 < length then previous = body:take(length) end
            if not previous then error({ malformed = "the first entry of a manifest has no subject" }) end
            tree:add(fields[name .. ".subject"], previous, previous:string(ENC_UTF_8))
            if not has(flags, FLAG_UNSEQ) then body:add(tree, name .. ".seq", 8) end
            if has(flags, FLAG_CHAIN) then body:add(tree, name .. ".chain", 8) end
            tree:add(fields[name .. ".event"], has(flags, FLAG_EVENT))
            if has(flags, FLAG_PART) then
                body:add(tree, name .. ".index", 4)
                body:add(tree, name .. ".total_bytes", 4)
            else
                body:add(tree, name .. ".count", 2)
            end
        end
    end
    return datagrams .. " from " .. tostring(first)
end

local function add_interest(body, tree)
    for _, part in ipairs({ "after", "upto", "high", "base" }) do
        body:add(tree, "interest." .. part, 8)
    end
    local count = body:take(2):uint()
    for _ = 1, count do
        local flags = body:take(1):uint()
        body:add_text(tree, "interest.entries.pattern")
        if has(flags, 0x01) then body:add_text(tree, "interest.entries.glob") end
        if has(flags, 0x02) then body:add_text(tree, "interest.entries.queue") end
        local start = body.at
        local subscriptions = body:varint()
        tree:add(fields["interest.entries.count"], body.range:range(start, body.at - start), subscriptions)
    end
    return count .. (count == 1 and " entry" or " entries")
end

local function add_interest_request(body, tree)
    body:add(tree, "interest_request.peer", 8)
    body:add(tree, "interest_request.from", 8)
    body:add(tree, "interest_request.base", 8)
    return ""
end

local function add_receiver_report(body, tree)
    body:add(tree, "receiver_report.publisher", 8)
    local taken = body:add(tree, "receiver_report.taken", 8)
    for _, part in ipairs({ "window_bytes", "awaited", "dropped" }) do
        body:add(tree, "receiver_report." .. part, 8)
    end
    return "taken " .. tostring(taken)
end

local BODIES = {
    run = add_run,
    fragment = add_fragment,
    heartbeat = function(body, tree) return add_announcement(body, tree, "heartbeat") end,
    bye = function(body, tree) return add_announcement(body, tree, "bye") end,
    hello = add_hello,
    resend_request = add_resend_request,
    manifest = add_manifest,
    expired = add_expired,
    interest = add_interest,
    interest_request = add_interest_request,
    receiver_report = add_receiver_report,
}

-- Adds the records of a datagram and returns their summaries.
local function add_records(content, tree)
    local summaries, records = {}, reader(content)
    while 0 < records.left do
        local start = records.at
        local record_type = records:take(1):uint()
        local flags = records:take(1):uint()
        local bytes = records:take(2):uint()
        local name = RECORDS[record_type]
        local branch = tree:add(seqcast, content:range(start, RECORD_HEADER_BYTES))
        branch:set_text(name or string.format("record 0x%02x", record_type))
        branch:add(fields.record, content:range(start, 1), name or string.format("0x%02x", record_type))
        if records.left < bytes then error({ malformed = "a record reaches past the end" }) end
        branch:set_len(RECORD_HEADER_BYTES + bytes)
        local add = BODIES[name]
        if add then
            if bytes == 0 then error({ malformed = "a record is empty" }) end
            local body = reader(records:take(bytes))
            local summary = add(body, branch, flags)
            body:finish()
            branch:append_text(" " .. summary)
            table.insert(summaries, (name .. " " .. summary))
        else
            if record_type < 0x40 and not name then branch:add(fields["unknown_data.type"], record_type) end
            if 0 < bytes then records:take(bytes) end
        end
    end
    return table.concat(summaries, ", ")
end

-- Check value: CRC32C, reflected ---------------------------------------------------------------------------------------

local CRC_TABLE = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local shifted = bit.rshift(crc, 1)
        crc = bit.band(crc, 1) == 1 and bit.bxor(shifted, 0x82f63b78) or shifted
    end
    CRC_TABLE[byte] = crc
end

local function crc32c(range)
    local bytes, crc = range:bytes(), 0xffffffff
    for index = 0, bytes:len() - 1 do
        crc = bit.bxor(bit.rshift(crc, 8), CRC_TABLE[bit.band(bit.bxor(crc, bytes:get_index(index)), 0xff)])
    end
    -- `bit` has signed numbers of 32 bits.
    return bit.bnot(crc) % 0x100000000
end

-- Datagram -------------------------------------------------------------------------------------------------------------

-- Adds the header and returns its kind and its length.
local function add_header(header, tree)
    tree:add(fields.version, header:take(3):range(2, 1))
    header:add(tree, "mode", 1)
    local kind_range = header:take(1)
    local kind = kind_range:uint()
    if not KINDS[kind] then error({ malformed = "datagrams of kind " .. kind .. " do not exist" }) end
    tree:add(fields.kind, kind_range, KINDS[kind])
    header:take(1)
    header:add(tree, "group", 2)
    header:add(tree, "epoch", 8)
    local number = header:add(tree, "number", 8)
    header:add(tree, "count", 8)
    header:add(tree, "uptime_ms", 4)
    if kind == DIRECTED then header:add(tree, "receiver", 8) end
    return KINDS[kind] .. " #" .. tostring(number), header.at
end

-- Adds the check value at the end, and returns whether it fits.
local function add_check(buffer, tree)
    local bytes = buffer:len()
    local check = buffer(bytes - CHECK_BYTES)
    local check_tree = tree:add(fields.check, check)
    local fits = crc32c(buffer(0, bytes - CHECK_BYTES)) == check:uint()
    if not fits then check_tree:add_proto_expert_info(bad_check) end
    return fits
end

local function dissect_beacon(buffer, tree)
    tree:add(fields.version, buffer(2, 1))
    tree:add(fields.kind, "beacon")
    local body = reader(buffer(4, buffer:len() - 4 - CHECK_BYTES))
    body:add(tree, "epoch", 8)
    local port = body:add(tree, "beacon.port", 2)
    local address_bytes, name_bytes = body:take(1):uint(), body:take(1):uint()
    if address_bytes ~= 4 and address_bytes ~= 16 then error({ malformed = "the group is no IP address" }) end
    local address = body:take(address_bytes)
    local group = tostring(address_bytes == 4 and address:ipv4() or address:ipv6())
    tree:add(fields["beacon.group"], address, group)
    local name = body:take(name_bytes)
    tree:add(fields["beacon.name"], name, name:string(ENC_UTF_8))
    body:finish()
    local summary = "beacon of " .. name:string(ENC_UTF_8) .. ", group " .. group .. " port " .. port
    return add_check(buffer, tree) and summary or summary .. " damaged"
end

local function dissect(buffer, tree)
    if buffer(0, 2):uint() == BEACON_MAGIC then return dissect_beacon(buffer, tree) end
    local bytes, mode = buffer:len(), buffer(3, 1):uint()
    local summary, header_bytes = add_header(reader(buffer()), tree)
    if mode ~= MODE_OPEN then
        if header_bytes < bytes then tree:add(fields.sealed, buffer(header_bytes)) end
        return summary .. " sealed by mode " .. mode
    end
    if bytes < header_bytes + CHECK_BYTES then error({ malformed = "the datagram is too short" }) end
    if not add_check(buffer, tree) then return summary .. " damaged" end
    if header_bytes + CHECK_BYTES == bytes then return summary end
    return summary .. " " .. add_records(buffer(header_bytes, bytes - header_bytes - CHECK_BYTES), tree)
end

function seqcast.dissector(buffer, packet, root)
    packet.cols.protocol = "seqcast"
    local tree = root:add(seqcast, buffer())
    local whole, result = pcall(dissect, buffer, tree)
    if not whole then
        -- Errors of this script itself are texts, and stay visible.
        if type(result) ~= "table" then error(result) end
        tree:add_proto_expert_info(malformed, result.malformed)
        result = "malformed: " .. result.malformed
    end
    packet.cols.info = result
    tree:append_text(", " .. result)
    return buffer:len()
end

local function recognizes(buffer, packet, root)
    if buffer:len() < BEACON_BYTES_MIN or buffer(2, 1):uint() ~= VERSION then return false end
    local magic = buffer(0, 2):uint()
    local is_datagram = magic == MAGIC and HEADER_BYTES <= buffer:len()
    if not is_datagram and magic ~= BEACON_MAGIC then return false end
    seqcast.dissector(buffer, packet, root)
    return true
end

seqcast:register_heuristic("udp", recognizes)

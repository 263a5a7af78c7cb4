-- What nginx with lua does for one identify: parse, check the fields, XADD, answer.
local cjson = require "cjson.safe"

local function answer(status, text)
    ngx.status = status
    ngx.header["Content-Type"] = "application/json"
    ngx.print(text)
end

local function isText(value, longest)
    return type(value) == "string" and #value > 0 and #value <= longest
end

ngx.req.read_body()
local body = ngx.req.get_body_data()
local write = body and cjson.decode(body)
if type(write) ~= "table" or not isText(write.appUserId, 255) or not isText(write.bundleId, 255)
    or (write.attributes ~= nil and type(write.attributes) ~= "table") then
    return answer(400, '{"ok":false}')
end
local kept = cjson.encode(write)
local redis = ngx.socket.tcp()
if not redis:connect("unix:" .. ngx.var.redis_socket) then return answer(503, '{"ok":false}') end
redis:send({
    "*5\r\n$4\r\nXADD\r\n$4\r\npeer\r\n$1\r\n*\r\n$1\r\nd\r\n$", #kept, "\r\n", kept, "\r\n",
})
local line = redis:receive("*l")
local id = line and line:sub(1, 1) == "$" and redis:receive(tonumber(line:sub(2)) + 2)
if not id then return answer(503, '{"ok":false}') end
redis:setkeepalive(60000, 256)
answer(200, '{"ok":true,"id":"' .. id:sub(1, -3) .. '"}')

// One identify with Node's http: parse, check the fields, XADD over one connection, answer.
'use strict';
const http = require('http');
const net = require('net');

const [port, socket] = process.argv.slice(2);
const redis = net.connect(socket);
const waiting = [];
let rest = '';

redis.setEncoding('latin1');
redis.on('data', (chunk) => {
  rest += chunk;
  for (;;) {
    const end = rest.indexOf('\r\n');
    if (end < 0) return;
    if (rest[0] !== '$') {
      waiting.shift()(null);
      rest = rest.slice(end + 2);
      continue;
    }
    const length = Number(rest.slice(1, end));
    if (rest.length < end + 4 + length) return;
    waiting.shift()(rest.slice(end + 2, end + 2 + length));
    rest = rest.slice(end + 4 + length);
  }
});

function add(text, done) {
  waiting.push(done);
  redis.write(`*5\r\n$4\r\nXADD\r\n$4\r\npeer\r\n$1\r\n*\r\n$1\r\nd\r\n$${Buffer.byteLength(text)}\r\n${text}\r\n`);
}

function isText(value, longest) {
  return typeof value === 'string' && value.length > 0 && value.length <= longest;
}

function read(text) {
  try {
    const write = JSON.parse(text);
    const good = isText(write.appUserId, 255) && isText(write.bundleId, 255)
      && (write.attributes === undefined || typeof write.attributes === 'object');
    return good ? write : null;
  } catch {
    return null;
  }
}

http.createServer((request, response) => {
  const answer = (status, value) => {
    const text = JSON.stringify(value);
    response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': text.length });
    response.end(text);
  };
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const write = read(Buffer.concat(chunks).toString());
    if (!write) return answer(400, { ok: false });
    add(JSON.stringify(write), (id) => answer(id ? 200 : 503, { ok: Boolean(id), id }));
  });
}).listen(Number(port), '127.0.0.1');

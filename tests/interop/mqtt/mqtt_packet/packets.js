// npm's mqtt-packet as a second reader and writer of MQTT, 3.1.1 and 5.0: what it writes, the broker must read as it was
// meant; and what the broker writes, it must read as it was meant. Random packets, by a seed.
// The last line says what came of it.
const assert = require('node:assert/strict')
const net = require('node:net')
const { generate, parser } = require('mqtt-packet')

const WAIT_MS = 15_000
const SEED = 20261128
const PACKETS = 1000

function mulberry32(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

const random = mulberry32(SEED)
const below = (limit) => Math.floor(random() * limit)
const maybe = (make) => (below(2) ? make() : undefined)
const text = (longest) => Array.from({ length: below(longest) }, () => 'abcxyz ä€𝄞'.split(/(?:)/u)[below(10)]).join('')
const bytes = (count) => Buffer.from(Array.from({ length: count }, () => below(256)))
const word = () => 1 + below(65535)
const given = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
// Of a name that comes twice, mqtt-packet reads no empty first value.
const pairs = () => Object.assign(Object.create(null), { [`a${below(9)}`]: [`1${text(5)}`, text(5)], b: text(9) })

// A connection of bytes. What comes is read by mqtt-packet.
class Wire {
  static async open(version, fields = {}) {
    const wire = new Wire()
    wire.options = { protocolVersion: version }
    wire.packets = []
    wire.waiting = []
    const reader = parser(wire.options)
    reader.on('packet', (packet) => wire.take(packet))
    reader.on('error', (error) => wire.fail(error))
    wire.socket = net.connect(Number(process.env.MQTT_PORT), '127.0.0.1')
    wire.socket.setNoDelay(true)
    wire.socket.on('data', (data) => reader.parse(data))
    wire.socket.on('error', (error) => wire.fail(error))
    wire.send({ cmd: 'connect', protocolId: 'MQTT', protocolVersion: version, clean: true, keepalive: 0, ...fields })
    wire.connack = await wire.next('connack')
    return wire
  }

  take(packet) {
    const next = this.waiting.shift()
    next ? next.resolve(packet) : this.packets.push(packet)
  }

  fail(error) {
    this.error = error
    this.waiting.forEach((next) => next.reject(error))
  }

  send(packet) { this.socket.write(generate(packet, this.options)) }

  async any() {
    if (this.error) throw this.error
    return this.packets.shift() ?? new Promise((resolve, reject) => this.waiting.push({ resolve, reject }))
  }

  async next(cmd) {
    const packet = await this.any()
    assert.equal(packet.cmd, cmd)
    return packet
  }

  close() { this.socket.destroy() }
}

async function connected(version, fields, use) {
  const wires = []
  const open = async (id, more) => {
    const wire = await Wire.open(version, { clientId: `packets-${id}`, ...more })
    wires.push(wire)
    return wire
  }
  try { await use(await open('one', fields), open) } finally { wires.forEach((wire) => wire.close()) }
}

async function subscribed(wire, pattern, qos, properties) {
  const messageId = word()
  const subscription = { topic: pattern, qos, nl: false, rap: true, rh: 2 }
  wire.send({ cmd: 'subscribe', messageId, subscriptions: [subscription], ...(properties && { properties }) })
  const suback = await wire.next('suback')
  assert.deepEqual([suback.messageId, suback.granted], [messageId, [qos]])
}

const publishProperties = () => given({
  payloadFormatIndicator: maybe(() => false),
  contentType: maybe(() => text(20)),
  responseTopic: maybe(() => `answer/${below(9)}`),
  correlationData: maybe(() => bytes(below(20))),
  userProperties: maybe(pairs),
})

// Payloads about the sizes at which a length takes one digit more, and random ones.
const sizes = [0, 1, 100, 110, 127, 128, 16_350, 16_383, 16_384, 70_000]

async function publishes(version) {
  await connected(version, {}, async (wire) => {
    const identifier = version === 5 ? 1 + below(2 ** 27) : undefined
    await subscribed(wire, 'packets/#', 2, identifier && { subscriptionIdentifier: identifier })
    for (let number = 0; number < PACKETS; number++) {
      const qos = below(3)
      const sent = {
        cmd: 'publish', dup: false, retain: false, qos, topic: `packets/${text(30)}`,
        payload: bytes(sizes[number] ?? below(300)), ...(qos && { messageId: 1 + number }),
      }
      const properties = version === 5 ? publishProperties() : {}
      if (version === 5) sent.properties = { ...properties, messageExpiryInterval: 1000 + below(2 ** 31) }
      wire.send(sent)
      let came
      let left = qos // answers: PUBACK, or PUBREC and PUBCOMP
      while (!came || left) {
        const packet = await wire.any()
        if (packet.cmd === 'publish') {
          came = packet
          if (qos === 1) wire.send({ cmd: 'puback', messageId: packet.messageId })
          if (qos === 2) wire.send({ cmd: 'pubrec', messageId: packet.messageId })
          if (qos === 2) left += 1 // PUBREL
        } else {
          left -= 1
          if (packet.cmd === 'pubrec') wire.send({ cmd: 'pubrel', messageId: packet.messageId })
          else if (packet.cmd === 'pubrel') wire.send({ cmd: 'pubcomp', messageId: packet.messageId })
          else assert.ok(['puback', 'pubcomp'].includes(packet.cmd), packet.cmd)
          if (packet.cmd !== 'pubrel') assert.equal(packet.messageId, sent.messageId)
        }
      }
      assert.deepEqual([came.topic, came.qos, came.payload], [sent.topic, sent.qos, sent.payload])
      if (version === 5) {
        const { messageExpiryInterval, ...others } = came.properties
        const waited = sent.properties.messageExpiryInterval - messageExpiryInterval
        assert.ok(waited >= 0 && waited * 1000 <= WAIT_MS, `of the expiry interval ${waited} s are gone`)
        assert.deepEqual(others, { ...properties, subscriptionIdentifier: identifier })
      }
    }
  })
}

async function answers(version) {
  for (let number = 0; number < 20; number++) {
    await connected(version, { clientId: `packets-${number}`, keepalive: below(60) }, async (wire) => {
      assert.equal(version === 5 ? wire.connack.reasonCode : wire.connack.returnCode, 0)
      const subscriptions = Array.from({ length: 1 + below(8) }, (_, at) => (
        { topic: `answers/${at}/+/${below(99)}/#`, qos: below(3), nl: !!below(2), rap: !!below(2), rh: below(3) }))
      const messageId = word()
      wire.send({ cmd: 'subscribe', messageId, subscriptions })
      const suback = await wire.next('suback')
      assert.deepEqual([suback.messageId, suback.granted], [messageId, subscriptions.map(({ qos }) => qos)])
      wire.send({ cmd: 'unsubscribe', messageId, unsubscriptions: [...subscriptions.map(({ topic }) => topic), 'none'] })
      const unsuback = await wire.next('unsuback')
      assert.equal(unsuback.messageId, messageId)
      if (version === 5) assert.deepEqual(unsuback.granted, [...subscriptions.map(() => 0), 0x11])
      wire.send({ cmd: 'pingreq' })
      await wire.next('pingresp')
    })
  }
}

async function wills(version) {
  await connected(version, {}, async (wire, open) => {
    await subscribed(wire, 'wills/#', 1)
    for (let number = 0; number < 20; number++) {
      const properties = version === 5 ? publishProperties() : {}
      const will = { topic: `wills/${text(9)}`, payload: bytes(below(99)), qos: 1, retain: false }
      if (version === 5) will.properties = properties
      const dying = await open('dying', { will })
      dying.close()
      const came = await wire.next('publish')
      assert.deepEqual([came.topic, came.payload, came.qos], [will.topic, will.payload, 1])
      if (version === 5) assert.deepEqual({ ...came.properties }, properties)
      wire.send({ cmd: 'puback', messageId: came.messageId })
    }
  })
}

async function refusals() {
  await connected(5, {}, async (wire, open) => {
    await open('one') // the same client id
    assert.equal((await wire.next('disconnect')).reasonCode, 0x8e)
  })
  await connected(5, {}, async (wire) => {
    wire.send({ cmd: 'subscribe', messageId: 1, subscriptions: [{ topic: process.env.MQTT_DENIED, qos: 0 }] })
    assert.ok((await wire.next('suback')).granted[0] >= 0x80)
    wire.send({ cmd: 'publish', topic: process.env.MQTT_DENIED, payload: 'x', qos: 1, messageId: 9 })
    assert.equal((await wire.next('puback')).reasonCode, 0x87)
  })
}

const checks = {
  'PUBLISH, 3.1.1': () => publishes(4),
  'PUBLISH, 5.0': () => publishes(5),
  'SUBSCRIBE, UNSUBSCRIBE and PINGREQ, 3.1.1': () => answers(4),
  'SUBSCRIBE, UNSUBSCRIBE and PINGREQ, 5.0': () => answers(5),
  'wills, 3.1.1': () => wills(4),
  'wills, 5.0': () => wills(5),
  'DISCONNECT and refusals, 5.0': refusals,
}

async function main() {
  const outcomes = []
  for (const [name, check] of Object.entries(checks)) {
    const began = Date.now()
    let timer
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('no answer')), WAIT_MS) })
    const why = await Promise.race([check(), late]).then(() => '', (error) => String(error.message).slice(0, 500))
    clearTimeout(timer)
    outcomes.push({ name, passed: !why, seconds: (Date.now() - began) / 1000, why })
  }
  console.log(JSON.stringify(outcomes))
  process.exit(0)
}

main()

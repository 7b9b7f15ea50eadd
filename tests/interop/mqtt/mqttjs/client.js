// mqtt.js, MQTT 5.0: what checks.py asks of each client. The last line says what came of it.
const fs = require('node:fs')
const mqtt = require('mqtt')

const WAIT_MS = 10_000
const urls = {
  tcp: `mqtt://127.0.0.1:${process.env.MQTT_PORT}`,
  tls: `mqtts://127.0.0.1:${process.env.MQTTS_PORT}`,
  ws: `ws://127.0.0.1:${process.env.MQTT_WS_PORT}`,
}

class Link {
  static async open(part, { transport = 'tcp', clean = true, ...more } = {}) {
    const link = new Link()
    link.messages = []
    link.waiting = []
    const options = { clientId: `mqttjs-${part}`, protocolVersion: 5, clean, reconnectPeriod: 0, ...more }
    if (!clean) options.properties = { sessionExpiryInterval: 600 }
    if (transport === 'tls') options.ca = fs.readFileSync(process.env.MQTT_CA)
    link.client = mqtt.connect(urls[transport], options)
    link.client.on('message', (name, payload, packet) => {
      const message = `${name} ${payload} ${packet.qos} ${packet.retain}`
      const next = link.waiting.shift()
      next ? next(message) : link.messages.push(message)
    })
    await new Promise((resolve, reject) => {
      link.client.once('connect', (packet) => { link.resumed = packet.sessionPresent; resolve() })
      link.client.once('error', reject)
    })
    return link
  }

  next() {
    return this.messages.length ? this.messages.shift() : new Promise((resolve) => this.waiting.push(resolve))
  }

  async subscribe(pattern, qos) { await this.client.subscribeAsync(pattern, { qos }) }
  async publish(name, payload, qos, retain = false) { await this.client.publishAsync(name, payload, { qos, retain }) }
  async close() { await this.client.endAsync() }
}

function same(found, wanted) {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${JSON.stringify(found)} is not ${JSON.stringify(wanted)}`)
}

function roundTrip(transport, qos) {
  return async () => {
    const name = `mqttjs/${transport}/${qos}`
    const link = await Link.open(`${transport}${qos}`, { transport })
    await link.subscribe(name, qos)
    for (let number = 0; number < 10; number++) {
      await link.publish(name, String(number), qos)
      same(await link.next(), `${name} ${number} ${qos} false`)
    }
    await link.close()
  }
}

const checks = {
  'QoS 0': roundTrip('tcp', 0),
  'QoS 1': roundTrip('tcp', 1),
  'QoS 2': roundTrip('tcp', 2),
  will: async () => {
    const heir = await Link.open('heir')
    await heir.subscribe('mqttjs/will', 1)
    const dying = await Link.open('dying', { will: { topic: 'mqttjs/will', payload: Buffer.from('gone'), qos: 1 } })
    dying.client.stream.destroy()
    same(await heir.next(), 'mqttjs/will gone 1 false')
    await heir.close()
  },
  retained: async () => {
    const teller = await Link.open('teller')
    await teller.publish('mqttjs/retained', 'kept', 1, true)
    const late = await Link.open('late')
    await late.subscribe('mqttjs/retained', 1)
    same(await late.next(), 'mqttjs/retained kept 1 true')
    await teller.publish('mqttjs/retained', '', 1, true)
    await teller.close()
    await late.close()
  },
  'session resumed': async () => {
    const first = await Link.open('sleeper', { clean: false })
    await first.subscribe('mqttjs/session', 1)
    await first.close()
    const waker = await Link.open('waker')
    await waker.publish('mqttjs/session', 'while away', 1)
    await waker.close()
    const again = await Link.open('sleeper', { clean: false })
    same(again.resumed, true)
    same(await again.next(), 'mqttjs/session while away 1 false')
    await again.close()
    await (await Link.open('sleeper')).close() // ends the session
  },
  'shared subscription': async () => {
    const members = [await Link.open('member0'), await Link.open('member1')]
    const came = []
    let all
    const done = new Promise((resolve) => { all = resolve })
    for (const member of members) {
      member.client.on('message', (_name, payload) => { if (came.push(Number(payload)) === 20) all() })
      await member.subscribe('$share/mqttjs/mqttjs/shared', 1)
    }
    const sharer = await Link.open('sharer')
    for (let number = 0; number < 20; number++) await sharer.publish('mqttjs/shared', String(number), 1)
    await done
    for (const link of [...members, sharer]) await link.close()
    same(came.sort((a, b) => a - b), [...Array(20).keys()])
  },
  TLS: roundTrip('tls', 1),
  WebSocket: roundTrip('ws', 1),
}

async function main() {
  const outcomes = []
  for (const [name, check] of Object.entries(checks)) {
    const started = performance.now()
    let why = ''
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error('it took too long')), WAIT_MS).unref())
    await Promise.race([check(), late]).catch((error) => { why = String(error).split('\n')[0] })
    outcomes.push({ name, passed: !why, seconds: (performance.now() - started) / 1000, why })
  }
  fs.writeSync(1, JSON.stringify(outcomes) + '\n')
  process.exit(0)
}

main()

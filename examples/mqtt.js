// Publish five readings with mqtt.js, and print what comes of them.
//
//     npm install mqtt
//     node examples/mqtt.js [URL]      (mqtt://127.0.0.1:1883; in a browser: ws://HOST:PORT of --mqtt-ws-address)
const mqtt = require('mqtt')

const readings = ['17.5', '17.6', '17.8', '18.1', '18.0']
const name = 'plant/7/heat'

async function main(url = 'mqtt://127.0.0.1:1883') {
  const client = await mqtt.connectAsync(url, { clientId: 'example-mqttjs', protocolVersion: 5 })
  const allCame = new Promise((resolve) => {
    let left = readings.length
    client.on('message', (topic, payload) => {
      console.log(`${topic}: ${payload}`)
      if (--left === 0) resolve()
    })
  })
  await client.subscribeAsync(name, { qos: 1 })
  for (const celsius of readings) await client.publishAsync(name, celsius, { qos: 1 })
  await allCame
  await client.endAsync()
}

main(...process.argv.slice(2))

// Read a topic with nsqjs, which knows nothing of SRTM: it finds the brokers at the distributor, as at nsqlookupd.
//
//   npm install && node consumer.js [TOPIC [CHANNEL [COUNT]]]
//
// $SRTM_DISTRIBUTOR: the distributor's URL.
const nsq = require("nsqjs");

const [topic = "la-highways", channel = "archive", count = "5"] = process.argv.slice(2);
let left = Number(count);

const reader = new nsq.Reader(topic, channel, {
  lookupdHTTPAddresses: [process.env.SRTM_DISTRIBUTOR || "http://127.0.0.1:4190"],
  lookupdPollInterval: 1, // s
  maxInFlight: 200, // shared by all brokers of the topic
});

reader.on("message", (message) => {
  if (left === 0) {
    message.requeue(0, false); // enough: for other consumers
    return;
  }
  console.log(message.body.toString());
  message.finish();
  left -= 1;
  if (left === 0) {
    setTimeout(() => process.exit(0), 100); // once the last message is finished
  }
});
reader.on("error", (error) => console.error(String(error)));
reader.connect();

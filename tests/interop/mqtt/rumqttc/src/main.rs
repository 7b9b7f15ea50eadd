//! rumqttc, MQTT 5.0: what `checks.py` asks of each client. The last line says what came of it.

use std::env::var;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::v5::{ConnectProperties, LastWill, Packet};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, Event, MqttOptions};
use rumqttc::{TlsConfiguration, Transport};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::task::JoinHandle;

const WAIT: Duration = Duration::from_secs(10);

type Done = Result<(), Box<dyn Error>>;
type Check = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Done>>>>;

#[derive(Clone, Debug, PartialEq)]
struct Message {
    name: String,
    payload: String,
    qos: QoS,
    retained: bool,
}

#[derive(Default)]
struct Wish {
    transport: &'static str,
    kept: bool,
    will: Option<LastWill>,
}

/// A client that is connected: its event loop runs until it ends, and tells what comes and what is answered.
struct Link {
    client: AsyncClient,
    running: JoinHandle<()>,
    messages: UnboundedReceiver<Message>,
    answers: UnboundedReceiver<()>,
    resumed: bool,
}

fn options(part: &str, wish: Wish) -> Result<MqttOptions, Box<dyn Error>> {
    let id = format!("rumqttc-{part}");
    let port = |name| -> Result<u16, Box<dyn Error>> { Ok(var(name)?.parse()?) };
    let mut options = match wish.transport {
        "tls" => {
            let mut options = MqttOptions::new(id, "127.0.0.1", port("MQTTS_PORT")?);
            let ca = std::fs::read(var("MQTT_CA")?)?;
            options.set_transport(Transport::tls_with_config(TlsConfiguration::Simple { ca, alpn: None, client_auth: None }));
            options
        }
        "ws" => {
            let port = port("MQTT_WS_PORT")?;
            let mut options = MqttOptions::new(id, format!("ws://127.0.0.1:{port}/mqtt"), port);
            options.set_transport(Transport::Ws);
            options
        }
        _ => MqttOptions::new(id, "127.0.0.1", port("MQTT_PORT")?),
    };
    options.set_clean_start(!wish.kept);
    if wish.kept {
        let properties = ConnectProperties { session_expiry_interval: Some(600), ..ConnectProperties::new() };
        options.set_connect_properties(properties);
    }
    if let Some(will) = wish.will {
        options.set_last_will(will);
    }
    Ok(options)
}

impl Link {
    async fn open(part: &str, wish: Wish) -> Result<Self, Box<dyn Error>> {
        let (client, mut events) = AsyncClient::new(options(part, wish)?, 100);
        let (tell, messages) = unbounded_channel();
        let (answered, answers) = unbounded_channel();
        let Event::Incoming(Packet::ConnAck(first)) = events.poll().await? else {
            return Err("the first packet was no CONNACK".into());
        };
        let running = tokio::spawn(async move {
            while let Ok(event) = events.poll().await {
                match event {
                    Event::Incoming(Packet::Publish(came)) => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let (name, payload) = (text(&came.topic), text(&came.payload));
                        let _ = tell.send(Message { name, payload, qos: came.qos, retained: came.retain });
                    }
                    Event::Incoming(Packet::SubAck(_) | Packet::PubAck(_) | Packet::PubComp(_)) => {
                        let _ = answered.send(());
                    }
                    _ => {}
                }
            }
        });
        Ok(Self { client, running, messages, answers, resumed: first.session_present })
    }

    async fn subscribe(&mut self, pattern: &str, qos: QoS) -> Done {
        self.client.subscribe(pattern, qos).await?;
        self.answers.recv().await.ok_or("no SUBACK")?;
        Ok(())
    }

    async fn publish(&mut self, name: &str, payload: &str, qos: QoS, retain: bool) -> Done {
        self.client.publish(name, qos, retain, payload.to_owned()).await?;
        if qos != QoS::AtMostOnce {
            self.answers.recv().await.ok_or("no acknowledgement")?;
        }
        Ok(())
    }

    async fn expect(&mut self, name: &str, payload: &str, qos: QoS, retained: bool) -> Done {
        let wanted = Message { name: name.into(), payload: payload.into(), qos, retained };
        let came = self.messages.recv().await.ok_or("the connection ended")?;
        if came == wanted { Ok(()) } else { Err(format!("{came:?} is not {wanted:?}").into()) }
    }

    async fn close(self) -> Done {
        self.client.disconnect().await?;
        self.running.await?;
        Ok(())
    }
}

async fn round_trip(transport: &'static str, qos: QoS) -> Done {
    let name = format!("rumqttc/{transport}/{}", qos as u8);
    let mut link = Link::open(&format!("{transport}{}", qos as u8), Wish { transport, ..Wish::default() }).await?;
    link.subscribe(&name, qos).await?;
    for number in 0..10 {
        link.publish(&name, &number.to_string(), qos, false).await?;
        link.expect(&name, &number.to_string(), qos, false).await?;
    }
    link.close().await
}

async fn will() -> Done {
    let mut heir = Link::open("heir", Wish::default()).await?;
    heir.subscribe("rumqttc/will", QoS::AtLeastOnce).await?;
    let will = LastWill::new("rumqttc/will", "gone", QoS::AtLeastOnce, false, None);
    let dying = Link::open("dying", Wish { will: Some(will), ..Wish::default() }).await?;
    dying.running.abort();
    heir.expect("rumqttc/will", "gone", QoS::AtLeastOnce, false).await?;
    heir.close().await
}

async fn retained() -> Done {
    let mut teller = Link::open("teller", Wish::default()).await?;
    teller.publish("rumqttc/retained", "kept", QoS::AtLeastOnce, true).await?;
    let mut late = Link::open("late", Wish::default()).await?;
    late.subscribe("rumqttc/retained", QoS::AtLeastOnce).await?;
    late.expect("rumqttc/retained", "kept", QoS::AtLeastOnce, true).await?;
    teller.publish("rumqttc/retained", "", QoS::AtLeastOnce, true).await?;
    teller.close().await?;
    late.close().await
}

async fn session() -> Done {
    let kept = || Wish { kept: true, ..Wish::default() };
    let mut first = Link::open("sleeper", kept()).await?;
    first.subscribe("rumqttc/session", QoS::AtLeastOnce).await?;
    first.close().await?;
    let mut waker = Link::open("waker", Wish::default()).await?;
    waker.publish("rumqttc/session", "while away", QoS::AtLeastOnce, false).await?;
    waker.close().await?;
    let mut again = Link::open("sleeper", kept()).await?;
    if !again.resumed {
        return Err("the broker did not have the session".into());
    }
    again.expect("rumqttc/session", "while away", QoS::AtLeastOnce, false).await?;
    again.close().await?;
    Link::open("sleeper", Wish::default()).await?.close().await // ends the session
}

async fn shared() -> Done {
    let mut members = Vec::new();
    for part in ["member0", "member1"] {
        let mut member = Link::open(part, Wish::default()).await?;
        member.subscribe("$share/rumqttc/rumqttc/shared", QoS::AtLeastOnce).await?;
        members.push(member);
    }
    let mut sharer = Link::open("sharer", Wish::default()).await?;
    let sent: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    for payload in &sent {
        sharer.publish("rumqttc/shared", payload, QoS::AtLeastOnce, false).await?;
    }
    let [one, other] = &mut members[..] else { return Err("two members".into()) };
    let mut came = Vec::new();
    while came.len() < sent.len() {
        let next = tokio::select! { it = one.messages.recv() => it, it = other.messages.recv() => it };
        came.push(next.ok_or("the connection ended")?.payload);
    }
    came.sort();
    for link in members.into_iter().chain([sharer]) {
        link.close().await?;
    }
    if came == sent { Ok(()) } else { Err(format!("{came:?} is not {sent:?}").into()) }
}

#[tokio::main]
async fn main() {
    fn check<F: Future<Output = Done> + 'static>(ask: impl Fn() -> F + 'static) -> Check {
        Box::new(move || Box::pin(ask()))
    }
    let checks = [
        ("QoS 0", check(|| round_trip("tcp", QoS::AtMostOnce))),
        ("QoS 1", check(|| round_trip("tcp", QoS::AtLeastOnce))),
        ("QoS 2", check(|| round_trip("tcp", QoS::ExactlyOnce))),
        ("will", check(will)),
        ("retained", check(retained)),
        ("session resumed", check(session)),
        ("shared subscription", check(shared)),
        ("TLS", check(|| round_trip("tls", QoS::AtLeastOnce))),
        ("WebSocket", check(|| round_trip("ws", QoS::AtLeastOnce))),
    ];
    let mut outcomes = Vec::new();
    for (name, ask) in checks {
        let started = Instant::now();
        let why = match tokio::time::timeout(WAIT, ask()).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        let seconds = started.elapsed().as_secs_f64();
        outcomes.push(serde_json::json!({"name": name, "passed": why.is_empty(), "seconds": seconds, "why": why}));
    }
    println!("{}", serde_json::Value::from(outcomes));
}

//! Events for Python, which `drain_events` collects.

use serde::Serialize;

use crate::time::Nanos;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    TopicCreated {
        topic: String,
    },
    TopicDeleted {
        topic: String,
    },
    ChannelCreated {
        topic: String,
        channel: String,
    },
    ChannelDeleted {
        topic: String,
        channel: String,
    },
    /// Publishes here but is not assigned here; once per publisher and `set_publishers`.
    UnassignedPublisher {
        topic: String,
        publisher_id: String,
    },
    /// The rate of arrivals is not what it was: `arrivals` came in the `span_ns` from `since_ns` on (monotonic clock),
    /// `waiting` wait for tokens now, under the share of `version`. Only while somebody asks for histories, or the
    /// topic is watched.
    RateChanged {
        topic: String,
        version: u64,
        since_ns: Nanos,
        span_ns: Nanos,
        arrivals: u64,
        waiting: usize,
    },
    /// A topic that was watched is not steady: its rate has drifted since, or messages wait. It is not watched any
    /// more.
    Unsteady {
        topic: String,
    },
    /// Messages wait under a zero share; once per share.
    Starved {
        topic: String,
        waiting: usize,
    },
    /// The lease of a share ended; `waiting` messages wait for tokens until it is renewed.
    Lapsed {
        topic: String,
        waiting: usize,
    },
    /// A connection waits for `set_authorization`; `secret` is in base64.
    AuthAsked {
        connection: u64,
        secret: String,
        remote_ip: String,
        tls: bool,
        common_name: String,
        username: String,
        client_id: String,
    },
    /// The disk refuses operations; once until it works again.
    DiskFailed {
        reason: String,
    },
    /// A write succeeded after one that did not.
    DiskWorks,
    /// A file was damaged or missing at the start or at a read.
    DiskRepaired {
        file: String,
        what: String,
    },
    /// Connections wait because the process lacks descriptors or memory; once until all of them are accepted.
    AcceptFailed {
        reason: String,
    },
    /// Clients met a limit (`limits::Limit::name`), the first of them `client`; at most once in 10 s for each limit.
    LimitReached {
        limit: &'static str,
        client: String,
        times: u64,
    },
    /// A client was denied something by passwords, tokens or access rules, first with the `name` of a message, a filter
    /// or a user. At most once a minute for each client and action; of more than 64 clients, the others are one ("").
    Denied {
        action: &'static str,
        client: String,
        name: String,
        times: u64,
    },
    /// Messages of an MQTT publisher were not taken: above a limit, or no room for them. Its client was told so
    /// (`refused`), its connection ended (`closed`), or nobody was told (`dropped`). `topic` and `why` are of the
    /// first. At most once a minute for each publisher; of more than 64, the others are one ("").
    MqttExcess {
        publisher: String,
        topic: String,
        why: String,
        refused: u64,
        closed: u64,
        dropped: u64,
    },
    /// Sessions or shared groups, the first of them `first`, had no room for messages of the topic (`dropped`
    /// deliveries, `refused` publishes), or were groups that ended while `ended` waited. At most once a minute for each
    /// topic; of more than 64, the others are one ("").
    MqttUnkept {
        topic: String,
        first: String,
        dropped: u64,
        refused: u64,
        ended: u64,
    },
    /// What subscribers want of other brokers has changed; once until Python looks.
    MqttInterestChanged,
    /// Another broker's mark has come over a link: so has all that it retained before.
    LinkMarked {
        number: u64,
        mark: String,
    },
    /// A connection to another broker is gone.
    LinkEnded {
        number: u64,
        reason: String,
    },
    /// So many SUBSCRIBE were answered though another broker does not know of them.
    SubscribedEarly {
        times: u64,
    },
    /// So many clients were let in though another broker, which did not answer or is away, may have their sessions.
    ConnectedEarly {
        times: u64,
    },
    /// The reactor cannot go on.
    Failed {
        reason: String,
    },
}

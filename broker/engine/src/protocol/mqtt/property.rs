//! Properties of 5.0 (section 2.2.2): one table says what each is and which packets may carry it.

use crate::protocol::mqtt::field_reader::Fields;
use crate::protocol::mqtt::reason::{Fault, Reason};

/// User properties of one packet. Each costs a few bytes on the wire and work at every subscriber.
pub const MAX_USER_PROPERTIES: usize = 64;

pub const PAYLOAD_FORMAT: u8 = 0x01;
pub const MESSAGE_EXPIRY: u8 = 0x02;
pub const CONTENT_TYPE: u8 = 0x03;
pub const RESPONSE_TOPIC: u8 = 0x08;
pub const CORRELATION_DATA: u8 = 0x09;
pub const SUBSCRIPTION_ID: u8 = 0x0b;
pub const SESSION_EXPIRY: u8 = 0x11;
pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
pub const SERVER_KEEP_ALIVE: u8 = 0x13;
pub const AUTHENTICATION_METHOD: u8 = 0x15;
pub const AUTHENTICATION_DATA: u8 = 0x16;
pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
pub const WILL_DELAY: u8 = 0x18;
pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
pub const RESPONSE_INFORMATION: u8 = 0x1a;
pub const SERVER_REFERENCE: u8 = 0x1c;
pub const REASON_STRING: u8 = 0x1f;
pub const RECEIVE_MAXIMUM: u8 = 0x21;
pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
pub const TOPIC_ALIAS: u8 = 0x23;
pub const MAXIMUM_QOS: u8 = 0x24;
pub const RETAIN_AVAILABLE: u8 = 0x25;
pub const USER: u8 = 0x26;
pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
pub const WILDCARD_AVAILABLE: u8 = 0x28;
pub const SUBSCRIPTION_ID_AVAILABLE: u8 = 0x29;
pub const SHARED_AVAILABLE: u8 = 0x2a;

/// What carries properties, of what a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Connect,
    Will,
    Publish,
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Ack,
    Subscribe,
    Unsubscribe,
    Disconnect,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Byte,
    Two,
    Four,
    Variable,
    Text,
    Binary,
    Pair,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Binary(&'a [u8]),
    Pair(&'a str, &'a str),
}

/// Form of each property, and who may carry it of what a client sends. `None`: there is no such property.
fn row(id: u8) -> Option<(Form, &'static [Carrier])> {
    use Carrier::{Ack, Connect, Disconnect, Publish, Subscribe, Unsubscribe, Will};
    use Form::{Binary, Byte, Four, Pair, Text, Two, Variable};
    Some(match id {
        PAYLOAD_FORMAT => (Byte, &[Publish, Will]),
        MESSAGE_EXPIRY => (Four, &[Publish, Will]),
        CONTENT_TYPE | RESPONSE_TOPIC => (Text, &[Publish, Will]),
        CORRELATION_DATA => (Binary, &[Publish, Will]),
        SUBSCRIPTION_ID => (Variable, &[Subscribe]),
        SESSION_EXPIRY => (Four, &[Connect, Disconnect]),
        AUTHENTICATION_METHOD => (Text, &[Connect]),
        AUTHENTICATION_DATA => (Binary, &[Connect]),
        REQUEST_PROBLEM_INFORMATION | REQUEST_RESPONSE_INFORMATION => (Byte, &[Connect]),
        WILL_DELAY => (Four, &[Will]),
        REASON_STRING => (Text, &[Ack, Disconnect]),
        RECEIVE_MAXIMUM | TOPIC_ALIAS_MAXIMUM => (Two, &[Connect]),
        TOPIC_ALIAS => (Two, &[Publish]),
        USER => (Pair, &[Connect, Will, Publish, Ack, Subscribe, Unsubscribe, Disconnect]),
        MAXIMUM_PACKET_SIZE => (Four, &[Connect]),
        ASSIGNED_CLIENT_ID | RESPONSE_INFORMATION | SERVER_REFERENCE => (Text, &[]),
        SERVER_KEEP_ALIVE => (Two, &[]),
        MAXIMUM_QOS | RETAIN_AVAILABLE | WILDCARD_AVAILABLE => (Byte, &[]),
        SUBSCRIPTION_ID_AVAILABLE | SHARED_AVAILABLE => (Byte, &[]),
        _ => return None,
    })
}

/// Properties of a packet, as they came. They were checked.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// Bytes of all of them.
    pub fn size(self) -> usize {
        self.0.len()
    }

    /// Reads and checks the properties of a `carrier`: their length, then each.
    pub fn read(fields: &mut Fields<'a>, carrier: Carrier) -> Result<Self, Fault> {
        let len = fields.variable()?;
        let bytes = fields.take(len as usize)?;
        if !bytes.is_empty() {
            check(Fields::new(bytes), carrier)?;
        }
        Ok(Self(bytes))
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Every property and its value, in order.
    pub fn iter(self) -> impl Iterator<Item = (u8, Value<'a>)> {
        self.spans().map(|(id, value, _)| (id, value))
    }

    /// The same, each with its bytes as they came.
    pub fn spans(self) -> impl Iterator<Item = (u8, Value<'a>, &'a [u8])> {
        let mut fields = Fields::new(self.0);
        std::iter::from_fn(move || {
            let before = fields.rest();
            let (id, value) = next(&mut fields).ok().flatten()?;
            Some((id, value, &before[..before.len() - fields.rest().len()]))
        })
    }

    pub fn number(self, id: u8) -> Option<u32> {
        self.iter().find_map(|(other, value)| match value {
            Value::Number(number) if other == id => Some(number),
            _ => None,
        })
    }

    pub fn text(self, id: u8) -> Option<&'a str> {
        self.iter().find_map(|(other, value)| match value {
            Value::Text(text) if other == id => Some(text),
            _ => None,
        })
    }

    /// Value of the first user property of this name.
    pub fn user(self, name: &str) -> Option<&'a str> {
        self.iter().find_map(|(_, value)| match value {
            Value::Pair(key, value) if key == name => Some(value),
            _ => None,
        })
    }
}

fn check(mut fields: Fields<'_>, carrier: Carrier) -> Result<(), Fault> {
    let (mut seen, mut users) = (0_u64, 0);
    while let Some((id, value)) = next(&mut fields)? {
        let allowed = row(id).is_some_and(|(_, carriers)| carriers.contains(&carrier));
        if !allowed {
            return Err(foreign(carrier));
        }
        if id == USER {
            users += 1;
            if users > MAX_USER_PROPERTIES {
                return Err(Fault::new(Reason::PACKET_TOO_LARGE, "a packet may have 64 user properties"));
            }
            continue;
        }
        if seen & 1 << id != 0 {
            return Err(Fault::protocol("a property comes twice (section 2.2.2)"));
        }
        seen |= 1 << id;
        check_value(id, value)?;
    }
    if seen & 1 << AUTHENTICATION_DATA != 0 && seen & 1 << AUTHENTICATION_METHOD == 0 {
        return Err(Fault::protocol("Authentication Data needs an Authentication Method (section 3.1.2.11.10)"));
    }
    Ok(())
}

/// The standard has both codes for a property of another packet (sections 2.2.2.2 and 4.13); Mosquitto's are these.
fn foreign(carrier: Carrier) -> Fault {
    let rule = "a property does not belong to this packet (section 2.2.2.2)";
    match carrier {
        Carrier::Subscribe | Carrier::Unsubscribe => Fault::malformed(rule),
        _ => Fault::protocol(rule),
    }
}

fn check_value(id: u8, value: Value<'_>) -> Result<(), Fault> {
    let rule = match (id, value) {
        (RECEIVE_MAXIMUM | MAXIMUM_PACKET_SIZE | SUBSCRIPTION_ID, Value::Number(0)) => "a property must not be 0",
        (TOPIC_ALIAS, Value::Number(0)) => {
            return Err(Fault::new(Reason::TOPIC_ALIAS_INVALID, "a Topic Alias must not be 0 [MQTT-3.3.2-8]"));
        }
        (PAYLOAD_FORMAT | REQUEST_PROBLEM_INFORMATION | REQUEST_RESPONSE_INFORMATION, Value::Number(2..)) => {
            "a property must be 0 or 1"
        }
        (RESPONSE_TOPIC, Value::Text(topic)) if topic.is_empty() || topic.contains(['+', '#']) => {
            "a Response Topic must be the name of a topic [MQTT-3.3.2-14]"
        }
        _ => return Ok(()),
    };
    Err(Fault::protocol(rule))
}

/// The next property. `None`: there is no more.
fn next<'a>(fields: &mut Fields<'a>) -> Result<Option<(u8, Value<'a>)>, Fault> {
    if fields.is_empty() {
        return Ok(None);
    }
    let id = fields.byte()?; // a variable byte integer, of which all values that have a meaning fit into one byte
    let (form, _) = row(id).ok_or(Fault::malformed("a property is unknown (section 2.2.2.2)"))?;
    let value = match form {
        Form::Byte => Value::Number(fields.byte()?.into()),
        Form::Two => Value::Number(fields.two()?.into()),
        Form::Four => Value::Number(fields.four()?),
        Form::Variable => Value::Number(fields.variable()?),
        Form::Text => Value::Text(fields.text()?),
        Form::Binary => Value::Binary(fields.binary()?),
        Form::Pair => Value::Pair(fields.text()?, fields.text()?),
    };
    Ok(Some((id, value)))
}

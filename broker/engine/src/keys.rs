//! Keys of what the engine owns. A key stays invalid after its connection, topic or channel is gone: it never names another.

use slotmap::new_key_type;

new_key_type! {
    pub struct ConnKey;
    pub struct TopicKey;
    pub struct ChannelKey;
}

//! Keys of connections, topics, channels, sessions, groups and tallies. A key stays invalid after its object is gone:
//! it never names another.

use slotmap::new_key_type;

/// Connections, topics or messages of a long list that one turn visits: so that no message waits for all of them.
pub const VISITS_A_TURN: usize = 128;

new_key_type! {
    pub struct ConnKey;
    pub struct TopicKey;
    pub struct ChannelKey;
    pub struct SessionKey;
    pub struct GroupKey;
    pub struct TallyKey;
}

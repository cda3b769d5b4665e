//! What makes a request type an operation.

use serde::{Serialize, de::DeserializeOwned};

/// One operation: the implementing type is its request.
///
/// An operation is one HTTP/2 request, `POST /v1/<NAME>`. Request and response are each a [message](crate::message).
pub trait Operation: Serialize + DeserializeOwned {
    /// The operation's name and the last part of its route.
    const NAME: &'static str;

    /// Whether it changes something. Such a request carries an id, and sending it twice has the effect of sending it once.
    const MUTATES: bool;

    /// The head of the answer.
    type Output: Serialize + DeserializeOwned;
}

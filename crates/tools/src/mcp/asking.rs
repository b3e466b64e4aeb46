//! One request to a tool server, and its answer as JSON: rmcp's own types refuse a whole answer for one odd part.

use rmcp::{
    Peer, RoleClient,
    model::{CancelledNotificationParam, ClientRequest, RequestId},
    service::{PeerRequestOptions, ServiceError},
};
use serde_json::Value;

/// Sends a request and returns the `result` of its answer. If the future is dropped, the server is told that the
/// request is cancelled.
pub(super) async fn ask(peer: &Peer<RoleClient>, request: ClientRequest) -> Result<Value, ServiceError> {
    let handle = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    let mut cancel = CancelOnDrop { peer, id: Some(handle.id.clone()) };
    let answer = handle.await_response().await;
    cancel.id = None;
    serde_json::to_value(answer?).map_err(|_never| ServiceError::UnexpectedResponse)
}

struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(request_id) = self.id.take() else { return };
        let peer = self.peer.clone();
        let reason = Some("the caller no longer waits".to_owned());
        tokio::spawn(async move {
            // A connection that is gone needs no cancellation.
            drop(peer.notify_cancelled(CancelledNotificationParam::new(Some(request_id), reason)).await);
        });
    }
}

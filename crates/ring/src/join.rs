//! Waiting for several futures of one task.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

struct Joined<F: Future> {
    future: Pin<Box<F>>,
    output: Option<F::Output>,
}

/// Runs the futures concurrently and gives their outputs in order. Meant for a handful: each wake-up polls all that are
/// left.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut joined: Vec<Joined<F>> =
        futures.into_iter().map(|future| Joined { future: Box::pin(future), output: None }).collect();
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for one in &mut joined {
            if one.output.is_none() {
                match one.future.as_mut().poll(cx) {
                    Poll::Ready(value) => one.output = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    joined.into_iter().filter_map(|one| one.output).collect()
}

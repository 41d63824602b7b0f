//! Waiting for a file that another task is busy with: it is being written, told, settled or closed. Who is done with that wakes
//! those who wait, on whatever thread; they also look now and then by themselves, so that no wait rests on being woken.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, Waker};

use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::file::File;
use crate::looks::Looks;
use crate::router::Client;

/// So many are woken. Others look by themselves; so do those whose place somebody has who waits no more.
const WOKEN_MAX: usize = 64;

/// Tasks that wait until somebody is done with a file. They are woken also where it is forgotten.
#[derive(Default, Debug)]
pub(crate) struct Done {
    waiting: Vec<Waker>,
}

impl Done {
    fn wakes(&mut self, waker: &Waker) {
        if self.waiting.len() < WOKEN_MAX && !self.waiting.iter().any(|other| other.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// A task is done with something that others may wait for.
    pub(crate) fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.wake();
    }
}

impl Client {
    /// Waits as long as the file is open here and `is_so`.
    ///
    /// # Errors
    /// `EINTR` where the caller ends.
    pub(crate) async fn wait_while(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        is_so: impl Fn(&mut File) -> bool,
    ) -> Result<(), Errno> {
        let mut looks = Looks::default();
        while self.shared.file_is(inode, &is_so) {
            self.pause_while_for(caller, inode, &mut looks, &is_so).await?;
        }
        Ok(())
    }

    /// [`Self::pause_while`] of who does not wait on when its caller ends.
    ///
    /// # Errors
    /// `EINTR` where it ends.
    pub(crate) async fn pause_while_for(
        &self,
        caller: &Caller<'_>,
        inode: InodeId,
        looks: &mut Looks,
        is_so: impl Fn(&mut File) -> bool,
    ) -> Result<(), Errno> {
        if caller.is_ending() {
            return Err(Errno::EINTR);
        }
        self.pause_while(inode, looks, is_so).await;
        Ok(())
    }

    /// Until the next look, or until somebody is done with the file, so that it is not open here or not `is_so` any more.
    pub(crate) async fn pause_while(&self, inode: InodeId, looks: &mut Looks, is_so: impl Fn(&mut File) -> bool) {
        let mut pause = pin!(looks.pause());
        poll_fn(|cx| {
            // Under one lock: who is done after this look wakes this task.
            let is_still_so = self.shared.file_is(inode, |file| {
                let is_so = is_so(file);
                if is_so {
                    file.done.wakes(cx.waker());
                }
                is_so
            });
            if is_still_so { pause.as_mut().poll(cx) } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use types::cred::Credentials;

    use super::*;
    use crate::test_client;

    const FILE: InodeId = InodeId(77);

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_task_is_woken_once_and_when_the_file_is_forgotten() {
        let counts = [(); 2].map(|()| Arc::new(Count::default()));
        let wakers = counts.each_ref().map(|count| Waker::from(Arc::clone(count)));
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        let mut done = Done::default();
        (0..3).for_each(|_| done.wakes(&wakers[0]));
        done.wake();
        assert_eq!(woken(), [1, 0]);
        done.wake();
        assert_eq!(woken(), [1, 0], "it waits no more");
        done.wakes(&wakers[1]);
        drop(done);
        assert_eq!(woken(), [1, 1]);
    }

    /// Those who have ended leave theirs behind until the next is done.
    #[test]
    fn not_more_than_some_are_noted() {
        let mut done = Done::default();
        (0..2 * WOKEN_MAX).for_each(|_| done.wakes(&Waker::from(Arc::new(Count::default()))));
        assert_eq!(done.waiting.len(), WOKEN_MAX);
    }

    /// Starts a task that waits while the file is being settled, and notes when it is over.
    fn wait(client: &Rc<Client>) -> Rc<Cell<bool>> {
        let (client, over) = (Rc::clone(client), Rc::new(Cell::new(false)));
        let noted = Rc::clone(&over);
        ring::spawn(async move {
            let waited = client.wait_while_settling(&Caller::patient(Credentials::default()), FILE).await;
            noted.set(waited.is_ok());
        });
        over
    }

    #[test]
    fn who_waits_goes_on_in_the_turn_in_which_another_task_is_done() {
        test_client::run(async |client| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.settling = true);
            let over = wait(&client);
            // It looks seldom by now.
            ring::sleep(Duration::from_millis(40)).await;
            client.shared.with_file(FILE, |file| file.done.wake());
            ring::yield_now().await;
            assert!(!over.get(), "another one was done with something else");
            client.shared.with_file(FILE, |file| {
                file.settling = false;
                file.done.wake();
            });
            ring::yield_now().await;
            assert!(over.get());
        });
    }

    #[test]
    fn who_is_not_woken_looks_by_itself() {
        test_client::run(async |client| {
            client.shared.with_new_file(FILE, || test_client::file(FILE), |file| file.settling = true);
            let over = wait(&client);
            ring::yield_now().await;
            client.shared.with_file(FILE, |file| file.settling = false);
            let waits = async || {
                while !over.get() {
                    ring::sleep(Duration::from_millis(1)).await;
                }
            };
            ring::timeout(Duration::from_secs(5), waits()).await.expect("it looks");
        });
    }
}

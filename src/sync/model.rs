//! The stand-ins: shuttle's, and what it lacks. All threads of a model share one of the system's, and take
//! turns where one of these is used.

use std::cell::Cell;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic, mpsc};
/// It never blocks: nobody here initialises one by a function.
pub(crate) use std::sync::OnceLock;

/// A moment on a clock that moves only when a timed wait runs out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant(Duration);

thread_local! {
    /// Not zero: as on a real clock, the longest duration from now is too long.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::from_secs(1)) };
}

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant(CLOCK.get())
    }

    pub(crate) fn checked_add(self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One whose waits may end for no reason, and whose timed waits may run out at any moment, or never.
#[derive(Debug, Default)]
pub(crate) struct Condvar(Arc<shuttle::sync::Condvar>);

type Waited<'a, T, More> = std::sync::LockResult<(MutexGuard<'a, T>, More)>;

impl Condvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> std::sync::LockResult<MutexGuard<'a, T>> {
        let _alarm = thread_rng()
            .gen_bool(0.1)
            .then(|| Alarm::set(&self.0, Duration::ZERO));
        self.0.wait(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> Waited<'a, T, ()> {
        let _alarm = thread_rng()
            .gen_bool(0.5)
            .then(|| Alarm::set(&self.0, timeout));
        match self.0.wait(guard) {
            Ok(guard) => Ok((guard, ())),
            Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), ()))),
        }
    }
}

/// A thread that moves the clock, and then wakes the waiters until this is dropped.
struct Alarm(Arc<atomic::AtomicBool>);

impl Alarm {
    fn set(bell: &Arc<shuttle::sync::Condvar>, after: Duration) -> Alarm {
        let (heard, bell) = (Arc::new(atomic::AtomicBool::new(false)), Arc::clone(bell));
        let stop = Arc::clone(&heard);
        shuttle::thread::spawn(move || {
            CLOCK.set(CLOCK.get().saturating_add(after));
            while !stop.load(atomic::Ordering::SeqCst) {
                bell.notify_all();
                shuttle::thread::yield_now();
            }
        });
        Alarm(heard)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.store(true, atomic::Ordering::SeqCst);
    }
}

pub(crate) mod thread {
    use std::io;
    use std::num::NonZero;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use shuttle::rand::{Rng, thread_rng};
    use shuttle::sync::Arc;
    use shuttle::sync::atomic::{AtomicBool, Ordering};

    pub(crate) use shuttle::thread::{Scope, ScopedJoinHandle, Thread, ThreadId, current, scope};

    /// The same on every machine, so that a seed means the same.
    #[expect(clippy::unnecessary_wraps, reason = "std's can fail")]
    pub(crate) fn available_parallelism() -> io::Result<NonZero<usize>> {
        Ok(NonZero::<usize>::MIN.saturating_add(3))
    }

    pub(crate) struct Builder(shuttle::thread::Builder);

    impl Builder {
        pub(crate) fn new() -> Builder {
            Builder(shuttle::thread::Builder::new())
        }

        pub(crate) fn name(self, name: String) -> Builder {
            Builder(self.0.name(name))
        }

        /// A panic ends the thread, not the model.
        pub(crate) fn spawn<T: Send + 'static>(
            self,
            body: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let finished = Arc::new(AtomicBool::new(false));
            let finishes = Arc::clone(&finished);
            let thread = self.0.spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(body));
                finishes.store(true, Ordering::SeqCst);
                result
            })?;
            Ok(JoinHandle { thread, finished })
        }

        /// Now and then there is no thread to be had.
        pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &'scope Scope<'scope, '_>,
            body: impl FnOnce() -> T + Send + 'scope,
        ) -> io::Result<ScopedJoinHandle<'scope, T>> {
            if thread_rng().gen_bool(0.1) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(scope.spawn(body))
        }
    }

    #[derive(Debug)]
    pub(crate) struct JoinHandle<T> {
        thread: shuttle::thread::JoinHandle<std::thread::Result<T>>,
        finished: Arc<AtomicBool>,
    }

    impl<T> JoinHandle<T> {
        pub(crate) fn thread(&self) -> &Thread {
            self.thread.thread()
        }

        pub(crate) fn is_finished(&self) -> bool {
            self.finished.load(Ordering::SeqCst)
        }

        pub(crate) fn join(self) -> std::thread::Result<T> {
            self.thread.join()?
        }
    }
}

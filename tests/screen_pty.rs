//! The screen in a real pseudo-terminal: however a Rust program ends, its terminal is as it was before.
//!
//! Each test starts this program again, in a terminal of its own, to run one of the scenes at the end of this file.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "worker/time_limit.rs"]
#[expect(dead_code, reason = "programs that are started take longer")]
mod time_limit;

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pitstop::renderer::{KILLING, Renderer, Screen, ScreenOptions, Split};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;
use time_limit::limited_to;

/// Seconds; a scene that takes longer hangs.
const LIMIT: u64 = 60;
const MOMENT: Duration = Duration::from_millis(5);
/// Names the directory in which a scene and its test find each other.
const SCENE: &str = "PITSTOP_SCENE";
const ALTERNATE: &str = "\x1b[?1049h";
const BACK: &str = "\x1b[?1049l";
/// Of a thousand bytes each: more than is kept in memory.
const LINES: usize = 17 << 10;

/// A scene in a terminal.
struct Terminal {
    keyboard: OwnedFd,
    /// The other end; open, so that it can be looked at when the scene is over.
    device: File,
    before: Termios,
    scene: Child,
    seen: Vec<u8>,
    meeting: TempDir,
}

impl Terminal {
    fn open(scene: &str) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let size = Winsize {
            ws_row: 30,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&keyboard, size).unwrap();
        let status = rustix::fs::fcntl_getfl(&keyboard).unwrap();
        rustix::fs::fcntl_setfl(&keyboard, status | OFlags::NONBLOCK).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits() as i32)
            .open(name.to_str().unwrap())
            .unwrap();
        let before = tcgetattr(&device).unwrap();
        let meeting = tempfile::tempdir().unwrap();
        let stream = || Stdio::from(device.try_clone().unwrap());
        // Whoever starts tests in the background of a shell has them ignore SIGINT.
        let scene = Command::new("setsid")
            .args(["--ctty", "env", "--default-signal"])
            .arg(env::current_exe().unwrap())
            .args([
                scene,
                "--exact",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(SCENE, meeting.path())
            .env("TERM", "xterm-256color")
            .env("RUST_BACKTRACE", "0")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap();
        Terminal {
            keyboard,
            device,
            before,
            scene,
            seen: Vec::new(),
            meeting,
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.keyboard, &mut buffer) {
            self.seen.extend_from_slice(&buffer[..count]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// What came since the screen was left last.
    fn afterwards(&self) -> String {
        let text = self.text();
        let (_, afterwards) = text.rsplit_once(BACK).unwrap_or_else(|| panic!("{text:?}"));
        afterwards.to_owned()
    }

    fn wait_for(&mut self, text: &str) {
        while !self.text().contains(text) {
            let ended = self.scene.try_wait().unwrap();
            self.read();
            let seen = self.text();
            assert!(
                ended.is_none() || seen.contains(text),
                "no {text:?} in {seen:?}"
            );
            thread::sleep(MOMENT);
        }
    }

    /// The screen is up, and shows something.
    fn wait_for_screen(&mut self) {
        self.wait_for(ALTERNATE);
        self.wait_for("loss");
    }

    /// The screen was taken that often. What comes meanwhile is too much to be looked at again and again.
    fn wait_for_screens(&mut self, times: usize) {
        let (mut found, mut looked) = (0, 0);
        while found < times {
            let ended = self.scene.try_wait().unwrap();
            self.read();
            let new = self.seen[looked..].windows(ALTERNATE.len());
            found += new.filter(|part| *part == ALTERNATE.as_bytes()).count();
            // The last one may have been cut in two.
            looked = self.seen.len().saturating_sub(ALTERNATE.len() - 1);
            assert!(ended.is_none() || found >= times, "{found} of {times}");
            thread::sleep(MOMENT);
        }
    }

    /// What came while the screen was not there.
    fn outside(&self) -> String {
        let text = self.text();
        let mut parts = text.split(ALTERNATE);
        let before = parts.next().unwrap_or_default();
        let others = parts.filter_map(|part| part.split_once(BACK));
        let others = others.map(|(_, outside)| outside);
        [before].into_iter().chain(others).collect()
    }

    fn press(&self, keys: &[u8]) {
        assert_eq!(rustix::io::write(&self.keyboard, keys).unwrap(), keys.len());
    }

    /// Lets the scene go on with what comes after `name`.
    fn tell(&self, name: &str) {
        File::create(self.meeting.path().join(name)).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let status = loop {
            self.read();
            if let Some(status) = self.scene.try_wait().unwrap() {
                break status;
            }
            thread::sleep(MOMENT);
        };
        self.read();
        status
    }

    /// Panics unless everything is as it was before the screen.
    fn assert_is_given_back(&self) {
        let text = self.text();
        for (mode, last) in [
            (1049, 'l'),
            (25, 'h'),
            (1000, 'l'),
            (1006, 'l'),
            (2004, 'l'),
        ] {
            let at = |letter| text.rfind(&format!("\x1b[?{mode}{letter}"));
            let (set, reset) = (at('h'), at('l'));
            assert!(set.is_some() && reset.is_some(), "{mode}: {text:?}");
            let found = if set > reset { 'h' } else { 'l' };
            assert_eq!(found, last, "{mode}: {text:?}");
        }
        assert_eq!(
            modes(&tcgetattr(&self.device).unwrap()),
            modes(&self.before)
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.scene.kill();
        let _ = self.scene.wait();
    }
}

fn modes(termios: &Termios) -> String {
    let Termios {
        input_modes,
        output_modes,
        control_modes,
        local_modes,
        special_codes,
        ..
    } = termios;
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?} {special_codes:?}")
}

#[test]
fn a_panic_in_any_thread_gives_the_terminal_back_and_the_run_goes_on() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_panic_elsewhere");
        terminal.wait_for_screen();
        terminal.tell("panic");
        terminal.wait_for("the loader broke");
        terminal.wait_for("it goes on");
        terminal.assert_is_given_back();
        let said = terminal.afterwards();
        let printed = said.find("printed before").unwrap();
        assert!(printed < said.find("panicked at").unwrap(), "{said:?}");
        assert!(said.contains("the loader broke"), "{said:?}");
        terminal.tell("end");
        assert!(terminal.end().success());
        assert_eq!(terminal.text().matches(ALTERNATE).count(), 1);
        assert_eq!(terminal.afterwards().matches("printed before").count(), 1);
        terminal.assert_is_given_back();
    });
}

#[test]
fn a_panic_of_the_training_leaves_the_terminal_as_it_was() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_panic");
        terminal.wait_for_screen();
        terminal.tell("panic");
        assert!(!terminal.end().success());
        assert!(terminal.afterwards().contains("the training broke"));
        terminal.assert_is_given_back();
    });
}

#[test]
fn a_kill_is_told_in_one_line_and_takes_the_other_threads_along_in_silence() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_kill");
        terminal.wait_for_screen();
        terminal.press(b"qk");
        assert!(!terminal.end().success());
        let said = terminal.afterwards();
        let told = said.lines().filter(|line| line.trim_end() == KILLING);
        assert_eq!(told.count(), 1, "{said:?}");
        assert!(!said.contains("panicked at"), "{said:?}");
        assert!(!said.contains("the training is gone"), "{said:?}");
        terminal.assert_is_given_back();
    });
}

#[test]
fn the_hook_that_reported_panics_before_the_screen_reports_them_after_it() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_hook");
        terminal.wait_for_screen();
        terminal.tell("close");
        assert!(terminal.end().success());
        assert!(terminal.afterwards().contains("reported: after the screen"));
        terminal.assert_is_given_back();
    });
}

#[test]
fn exit_and_abort_give_the_terminal_back_and_what_was_printed() {
    limited_to(LIMIT, || {
        for how in ["scene_exit", "scene_abort"] {
            let mut terminal = Terminal::open(how);
            terminal.wait_for_screen();
            terminal.tell("end");
            let status = terminal.end();
            match how {
                "scene_exit" => assert_eq!(status.code(), Some(3)),
                _ => assert_eq!(status.signal(), Some(libc::SIGABRT)),
            }
            assert_eq!(terminal.afterwards().matches("printed before").count(), 1);
            terminal.assert_is_given_back();
        }
    });
}

#[test]
fn signals_that_end_a_program_end_it_with_its_terminal_as_it_was() {
    use rustix::process::{Pid, Signal, kill_process};
    limited_to(LIMIT, || {
        for signal in [
            Signal::TERM,
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::USR1,
        ] {
            let mut terminal = Terminal::open("scene_wait");
            terminal.wait_for_screen();
            kill_process(Pid::from_child(&terminal.scene), signal).unwrap();
            assert_eq!(terminal.end().signal(), Some(signal.as_raw()));
            assert_eq!(terminal.afterwards().matches("printed before").count(), 1);
            terminal.assert_is_given_back();
        }
    });
}

#[test]
fn much_that_is_printed_is_written_out_meanwhile_and_not_kept() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_much");
        terminal.wait_for_screen();
        terminal.tell("print");
        terminal.wait_for_screens(2);
        let printed_to = format!("/proc/{}/fd/1", terminal.scene.id());
        let kept = fs::metadata(printed_to).unwrap().blocks() * 512;
        assert!(kept < 4 << 20, "{kept} bytes");
        terminal.tell("end");
        assert!(terminal.end().success());
        let seen = terminal.outside();
        let lines = seen.lines().filter_map(|line| line.strip_prefix("line "));
        let numbers = lines.filter_map(|line| line.split(' ').next()?.parse::<usize>().ok());
        assert!(numbers.eq(1..=LINES), "a line is lost, or twice there");
        terminal.assert_is_given_back();
    });
}

#[test]
fn a_process_has_one_screen_at_a_time_and_may_have_another_one_afterwards() {
    limited_to(LIMIT, || {
        let mut terminal = Terminal::open("scene_two");
        terminal.wait_for_screen();
        terminal.tell("close");
        assert!(terminal.end().success(), "{:?}", terminal.text());
        assert_eq!(terminal.text().matches(ALTERNATE).count(), 2);
        terminal.assert_is_given_back();
    });
}

// What follows runs in those terminals.

/// The directory of the test that wants the scene; `None` if somebody runs all that is ignored.
fn meeting() -> Option<PathBuf> {
    env::var_os(SCENE).map(PathBuf::from)
}

fn wait_until_told(meeting: &Path, name: &str) {
    while !fs::exists(meeting.join(name)).unwrap() {
        thread::sleep(MOMENT);
    }
}

fn print(text: &str) {
    let mut out = io::stdout();
    writeln!(out, "{text}").unwrap();
}

fn open_screen() -> Screen {
    let mut screen = Screen::terminal(ScreenOptions::default()).unwrap();
    screen.start(Some(3), 0, 0);
    screen.numeric(Split::Train, "loss", 0.5, 1);
    print("printed before");
    screen
}

/// A thread that is waited for when this is dropped.
struct Helper(Option<JoinHandle<()>>);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

#[test]
#[ignore = "a scene"]
fn scene_panic_elsewhere() {
    let Some(meeting) = meeting() else { return };
    let mut screen = open_screen();
    wait_until_told(&meeting, "panic");
    assert!(thread::spawn(|| panic!("the loader broke")).join().is_err());
    screen.numeric(Split::Train, "loss", 0.4, 2);
    print("it goes on");
    wait_until_told(&meeting, "end");
    screen.close();
}

#[test]
#[ignore = "a scene"]
fn scene_panic() {
    let Some(meeting) = meeting() else { return };
    let _screen = open_screen();
    wait_until_told(&meeting, "panic");
    panic!("the training broke");
}

#[test]
#[ignore = "a scene"]
fn scene_kill() {
    let Some(_) = meeting() else { return };
    let mut screen = open_screen();
    let (sender, receiver) = mpsc::channel::<()>();
    let helper = thread::spawn(move || receiver.recv().expect("the training is gone"));
    // Dropped in reverse: first the sender, then the thread that misses it, then the screen.
    let _helper = Helper(Some(helper));
    let _sender = sender;
    for step in 2.. {
        screen.numeric(Split::Train, "loss", 1.0 / step as f64, step);
        thread::sleep(MOMENT);
    }
}

#[test]
#[ignore = "a scene"]
fn scene_hook() {
    let Some(meeting) = meeting() else { return };
    panic::set_hook(Box::new(|info| {
        let text = info.payload().downcast_ref::<&str>();
        print(&format!("reported: {}", text.unwrap_or(&"something else")));
    }));
    let screen = open_screen();
    wait_until_told(&meeting, "close");
    drop(screen);
    assert!(thread::spawn(|| panic!("after the screen")).join().is_err());
}

#[test]
#[ignore = "a scene"]
fn scene_exit() {
    let Some(meeting) = meeting() else { return };
    let _screen = open_screen();
    wait_until_told(&meeting, "end");
    process::exit(3);
}

#[test]
#[ignore = "a scene"]
fn scene_abort() {
    let Some(meeting) = meeting() else { return };
    let _screen = open_screen();
    wait_until_told(&meeting, "end");
    process::abort();
}

#[test]
#[ignore = "a scene"]
fn scene_wait() {
    let Some(meeting) = meeting() else { return };
    let _screen = open_screen();
    wait_until_told(&meeting, "never");
}

#[test]
#[ignore = "a scene"]
fn scene_two() {
    let Some(meeting) = meeting() else { return };
    let screen = open_screen();
    assert!(Screen::terminal(ScreenOptions::default()).is_err());
    wait_until_told(&meeting, "close");
    screen.close();
    drop(open_screen());
}

#[test]
#[ignore = "a scene"]
fn scene_much() {
    let Some(meeting) = meeting() else { return };
    let screen = open_screen();
    wait_until_told(&meeting, "print");
    for number in 1..=LINES {
        print(&format!("line {number} {:.>1000}", ""));
    }
    wait_until_told(&meeting, "end");
    screen.close();
}

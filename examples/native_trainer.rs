//! Trains a small network in Rust, saving in the background, and continues where it was stopped.
//!
//! ```text
//! cargo run --example native_trainer
//! cargo run --example native_trainer -- --dir runs/stopped --stop-after 700
//! cargo run --example native_trainer -- --dir runs/stopped --resume
//! ```
//!
//! The first and the last print the same loss, to the last bit: weights, momentum and the generator
//! that draws the batches all come back.
//!
//! With `--features tui` it has a screen. `q` `s` stops it softly, and it saves; `q` `k` kills it. It trains so
//! fast that there is little to see without `--steps 2000000`:
//!
//! ```text
//! cargo run --release --features tui --example native_trainer -- --dir runs/shown --steps 2000000
//! ```
#![expect(
    clippy::disallowed_macros,
    reason = "a program talks to the terminal; only the library must not"
)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use pitstop::renderer::{
    Event, Goal, Metric, Monitor, Renderer, Screen, ScreenOptions, Split, default_renderer,
};
use pitstop::{
    AsyncCheckpointer, Checkpointer, FileCheckpointer, Interrupter, Mode, Node, Options, Retention,
    SaveOptions, State, Tensor, Transfer,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HIDDEN: usize = 24;
const BATCH: usize = 16;
const RATE: f32 = 0.05;
const MOMENTUM: f32 = 0.9;

fn main() -> ExitCode {
    match Arguments::parse().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let retention = Retention::keep_last(2)? | Retention::keep_best("loss", Mode::Min, 1)?;
    let options = Options {
        retention: retention.clone(),
        ..Options::default()
    };
    let files = FileCheckpointer::open(&arguments.dir, options)?;
    let data = two_moons(512);
    let mut trainer = Trainer::new();
    let mut start = 0;
    if let Some((step, state)) = files.restore_newest()? {
        if !arguments.resume {
            let dir = arguments.dir.display();
            return Err(
                format!("{dir} holds checkpoints: --resume, or choose another --dir").into(),
            );
        }
        trainer.load(&state)?;
        start = step as usize;
        println!("resumed from: step {step}");
    }

    // A failed save stops the loop through the interrupter, and so may a person at the screen, a signal
    // handler or a scheduler that holds a clone of it.
    let interrupter = Interrupter::new();
    let monitor = Arc::new(Monitor::new(files.run().clone(), retention));
    let checkpointer =
        AsyncCheckpointer::new(monitor.around(files)).with_interrupter(interrupter.clone());
    let mut screen = open_screen(arguments, start as u64, &interrupter, monitor);
    for step in start + 1..=arguments.steps {
        // Whatever the screen is told, it panics if the person in front of it has killed the run.
        screen.numeric(Split::Train, "loss", trainer.step(&data), step as u64);
        screen.progress(step as u64, step as u64);
        if Some(step) == arguments.stop_after {
            interrupter.stop(Some("somebody asked for it"));
        }
        let stop = interrupter.should_stop();
        if stop || step % arguments.save_every == 0 || step == arguments.steps {
            let loss = trainer.loss(&data);
            screen.numeric(Split::Valid, "loss", loss, step as u64);
            // Returns once the worker has it; waits only while the save before is still under way.
            checkpointer.save(step, trainer.save(loss)?)?;
        }
        if stop {
            let reason = interrupter.get_message().unwrap_or_default();
            println!("stopped at step {step}: {reason}");
            break;
        }
    }
    // Waits for the last save. Says what failed, if anything did: dropping would only log it.
    let closed = checkpointer.close();
    screen.finish(closed.as_ref().err().map(ToString::to_string));
    screen.close();
    closed?;

    let loss = trainer.loss(&data);
    println!("final loss: {loss:.6} (bits {:016x})", loss.to_bits());
    Ok(())
}

/// The whole terminal, if this was built for it and there is one; else lines of text. A run that goes on says how far it
/// is: the time left is right then, and the plots go on too.
fn open_screen(
    arguments: &Arguments,
    start: u64,
    interrupter: &Interrupter,
    monitor: Arc<Monitor>,
) -> Screen {
    let mut screen = default_renderer(ScreenOptions {
        interrupter: interrupter.clone(),
        directory: Some(arguments.dir.clone()),
        checkpoints: Some(Box::new(move || monitor.look())),
        ..ScreenOptions::default()
    });
    screen.register(Metric {
        goal: Some(Goal::Min),
        ..Metric::new("loss")
    });
    let total = Some(arguments.steps as u64);
    screen.start_steps(total, start);
    screen.event(Event::SplitStart {
        split: Split::Train,
        done: start,
        total,
    });
    screen
}

/// A network with one hidden layer: two coordinates in, the odds of being on the upper moon out.
struct Trainer {
    model: Vec<Parameter>,
    rng: Rng,
}

struct Parameter {
    name: &'static str,
    shape: Vec<u64>,
    weight: Vec<f32>,
    velocity: Vec<f32>,
}

impl Trainer {
    fn new() -> Trainer {
        let mut rng = Rng(7);
        let mut parameter = |name, shape: &[usize]| {
            let weight: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal()).collect();
            Parameter {
                name,
                shape: shape.iter().map(|&extent| extent as u64).collect(),
                velocity: vec![0.0; weight.len()],
                weight,
            }
        };
        let model = vec![
            parameter("hidden.weight", &[HIDDEN, 2]),
            parameter("hidden.bias", &[HIDDEN]),
            parameter("output.weight", &[HIDDEN]),
            parameter("output.bias", &[1]),
        ];
        Trainer { model, rng }
    }

    /// All that the run needs to go on: the checkpoint. It copies the weights, so that training may
    /// change them while they are saved.
    fn save(&self, loss: f64) -> Result<Transfer> {
        let mut state = State::default();
        let mut named = |values: fn(&Parameter) -> &[f32]| -> Result<Node> {
            let mut entries = Vec::new();
            for parameter in &self.model {
                let tensor = Tensor::copy_of(values(parameter), &parameter.shape)?;
                entries.push((parameter.name, state.push(tensor)));
            }
            Ok(Node::dict(entries))
        };
        let model = named(|parameter| &parameter.weight)?;
        let optimizer = named(|parameter| &parameter.velocity)?;
        let rng = Node::Int(self.rng.0.cast_signed());
        state.root = Node::dict([("model", model), ("optimizer", optimizer), ("rng", rng)]);
        let metrics = [("loss".to_owned(), loss)].into();
        Ok(Transfer {
            options: SaveOptions {
                metrics,
                ..SaveOptions::default()
            },
            ..Transfer::from(state)
        })
    }

    fn load(&mut self, state: &State) -> Result<()> {
        let values = |entry: &str, name: &str| {
            let leaf = state.root.get(entry)?.get(name)?;
            state.tensor(leaf)?.to_vec::<f32>()
        };
        for parameter in &mut self.model {
            let name = parameter.name;
            let missing = || format!("the checkpoint has no {name} of this network");
            let fits = |values: &Vec<f32>| values.len() == parameter.velocity.len();
            parameter.weight = values("model", name).filter(fits).ok_or_else(missing)?;
            parameter.velocity = values("optimizer", name).filter(fits).ok_or_else(missing)?;
        }
        let rng = state.root.get("rng").and_then(Node::as_int);
        self.rng = Rng(rng
            .ok_or("the checkpoint has no generator")?
            .cast_unsigned());
        Ok(())
    }

    /// One step of gradient descent with momentum, on a batch drawn at random; returns the loss on it.
    fn step(&mut self, data: &[Sample]) -> f64 {
        let mut gradient: Vec<Vec<f32>> = self
            .model
            .iter()
            .map(|p| vec![0.0; p.weight.len()])
            .collect();
        let mut loss = 0.0;
        for _ in 0..BATCH {
            let sample = &data[self.rng.below(data.len())];
            let (hidden, odds) = self.forward(sample.at);
            loss += sample.cross_entropy(odds) / BATCH as f64;
            let error = (odds - sample.upper) / BATCH as f32;
            gradient[3][0] += error;
            for (unit, active) in hidden.iter().enumerate() {
                gradient[2][unit] += error * active;
                let back = error * self.model[2].weight[unit] * (1.0 - active * active);
                gradient[1][unit] += back;
                gradient[0][2 * unit] += back * sample.at[0];
                gradient[0][2 * unit + 1] += back * sample.at[1];
            }
        }
        for (parameter, gradient) in self.model.iter_mut().zip(&gradient) {
            let moving = parameter.weight.iter_mut().zip(&mut parameter.velocity);
            for ((weight, velocity), gradient) in moving.zip(gradient) {
                *velocity = MOMENTUM * *velocity + gradient;
                *weight -= RATE * *velocity;
            }
        }
        loss
    }

    fn forward(&self, at: [f32; 2]) -> (Vec<f32>, f32) {
        let [weight, bias, output, shift] = [0, 1, 2, 3].map(|i| &self.model[i].weight);
        let hidden: Vec<f32> = (0..HIDDEN)
            .map(|unit| {
                (weight[2 * unit] * at[0] + weight[2 * unit + 1] * at[1] + bias[unit]).tanh()
            })
            .collect();
        let logit = shift[0] + hidden.iter().zip(output).map(|(h, w)| h * w).sum::<f32>();
        (hidden, 1.0 / (1.0 + (-logit).exp()))
    }

    /// Mean cross-entropy over all the data.
    fn loss(&self, data: &[Sample]) -> f64 {
        let of = |sample: &Sample| sample.cross_entropy(self.forward(sample.at).1);
        data.iter().map(of).sum::<f64>() / data.len() as f64
    }
}

struct Sample {
    at: [f32; 2],
    upper: f32,
}

impl Sample {
    fn cross_entropy(&self, odds: f32) -> f64 {
        let odds = f64::from(odds);
        -(if self.upper > 0.5 { odds } else { 1.0 - odds })
            .max(1e-12)
            .ln()
    }
}

/// Two interleaved half circles, blurred.
fn two_moons(count: usize) -> Vec<Sample> {
    let mut rng = Rng(1);
    let mut sample = |i| {
        let upper = i % 2 == 0;
        let (sin, cos) = (std::f32::consts::PI * rng.uniform()).sin_cos();
        let [x, y] = if upper {
            [cos, sin]
        } else {
            [1.0 - cos, 0.5 - sin]
        };
        let at = [x + 0.2 * rng.normal(), y + 0.2 * rng.normal()];
        Sample {
            at,
            upper: f32::from(u8::from(upper)),
        }
    };
    (0..count).map(&mut sample).collect()
}

/// `SplitMix64`: a generator whose state is one number, so that it's easily saved.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 24) as f32
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Nearly normal, with mean 0 and variance 1.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
}

struct Arguments {
    dir: PathBuf,
    resume: bool,
    steps: usize,
    save_every: usize,
    stop_after: Option<usize>,
}

impl Arguments {
    fn parse() -> Result<Arguments> {
        let mut parsed = Arguments {
            dir: "runs/native".into(),
            resume: false,
            steps: 2000,
            save_every: 100,
            stop_after: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--resume" => parsed.resume = true,
                "--dir" => parsed.dir = value()?.into(),
                "--steps" => parsed.steps = value()?.parse()?,
                "--save-every" => parsed.save_every = value()?.parse()?,
                "--stop-after" => parsed.stop_after = Some(value()?.parse()?),
                _ => return Err(format!("unknown argument {name}").into()),
            }
        }
        Ok(parsed)
    }
}

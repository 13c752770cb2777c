"""Train a small character-level transformer in PyTorch, and continue after a kill to the last bit.

    python examples/train_gpt.py --steps 200 --save-every 20
    python examples/train_gpt.py --steps 200 --save-every 20 --resume    # after kill -9, at any moment

The text is the English of Python's own help pages (`pydoc_data.topics`). AdamW, a warm-up and
cosine schedule, and dropout all carry state from step to step, and batches are drawn from torch's
random generator; all of it is in `state`, so a resumed run prints the same final loss as one that
was never killed. That holds on one machine with one number of threads (`--threads`): with another
number, torch adds the same floating-point values in another order.
"""

import argparse
import pydoc_data.topics

import pitstop
import torch
from torch import nn
from torch.nn import functional

CONTEXT = 64  # characters that the model sees
BATCH = 16


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each added to what flows through."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.project(mixed.transpose(1, 2).reshape(x.shape)))
        return x + self.dropout(self.feed(self.norm2(x)))


class CharacterModel(nn.Module):
    """Embeddings, blocks, and the logits of each next character."""

    def __init__(self, characters, width=96, heads=4, blocks=3, dropout=0.1):
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.positions = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)
        self.head.weight = self.characters.weight  # tied: saved once, restored as one
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens):
        x = self.characters(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def load_text():
    """The help pages as character codes, and how many different characters there are."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    codes = {character: code for code, character in enumerate(sorted(set(text)))}
    return torch.tensor([codes[character] for character in text]), len(codes)


def loss_at(model, data, starts):
    """The mean cross-entropy of the windows of `data` that begin at `starts`."""
    windows = data[starts[:, None] + torch.arange(CONTEXT + 1)]
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def validate(model, data):
    """The loss over evenly spaced windows, without dropout: draws no random number."""
    model.eval()
    loss = loss_at(model, data, torch.arange(0, len(data) - CONTEXT - 1, 8 * CONTEXT)).item()
    model.train()
    return loss


def parse_arguments():
    parser = argparse.ArgumentParser(description="Train a character-level transformer, with checkpoints.")
    parser.add_argument("--dir", default="runs/gpt", help="where the checkpoints go")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads: part of what a run computes")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    data, characters = load_text()
    split = len(data) * 9 // 10
    training, held_out = data[:split], data[split:]

    model = CharacterModel(characters)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"model: {parameters:,} parameters; text: {len(data):,} characters", flush=True)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    # The schedule spans the whole run: resume with the same --steps.
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=3e-3, total_steps=args.steps + 1, pct_start=0.1, cycle_momentum=False
    )
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "rng": pitstop.Rng(),
        "best": None,
    }

    with (
        pitstop.Interrupter.on_signals() as interrupter,
        pitstop.AsyncCheckpointer(
            args.dir,
            interrupter=interrupter,
            retention=pitstop.KeepLast(3) | pitstop.KeepBest("val_loss"),
        ) as ckpt,
    ):
        start = ckpt.resume(into=state) if args.resume else None
        if start is not None:
            print(f"resumed from: step {start}", flush=True)
        elif ckpt.latest() is not None:
            raise SystemExit(f"{args.dir} holds checkpoints: add --resume, or choose another --dir")

        for step in range((start or 0) + 1, args.steps + 1):
            starts = torch.randint(len(training) - CONTEXT - 1, (BATCH,))
            optimizer.zero_grad()
            loss_at(model, training, starts).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

            if step % args.save_every == 0 or step == args.steps or interrupter.should_stop():
                loss = validate(model, held_out)
                state["best"] = loss if state["best"] is None else min(loss, state["best"])
                ckpt.save(step, state, metrics={"val_loss": loss})
                print(f"step {step}: validation loss {loss:.4f}", flush=True)
            if interrupter.should_stop():
                print(f"stopped at step {step}: {interrupter.get_message()}")
                return

    loss = validate(model, held_out)
    print(f"final loss: {loss!r} ({loss.hex()})")


if __name__ == "__main__":
    main()

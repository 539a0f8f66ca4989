"""A small training run that knows how to be preempted.

It learns to copy a random linear map with a multilayer perceptron, writes a checkpoint when it is asked
to stop (SIGTERM), and goes on from there when it is started again.

    python3 train.py CHECKPOINT STEPS
"""

import os
import signal
import sys
import time

import torch

checkpoint, steps = sys.argv[1], int(sys.argv[2])
device = torch.device("cuda")
torch.manual_seed(7)

width, batch = 2048, 16384
model = torch.nn.Sequential(
    torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
target = torch.randn(width, width, device=device) / width**0.5

first = 0
if os.path.exists(checkpoint):
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
print(
    f"job {os.environ.get('BURSAR_JOB')} attempt {os.environ.get('BURSAR_ATTEMPT')}: "
    f"{torch.cuda.get_device_name(0)}, {'resuming at' if first else 'starting at'} step {first}",
    flush=True,
)

stopping = False


def stop(signum, frame):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)


def save(step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, checkpoint + ".new")
    os.replace(checkpoint + ".new", checkpoint)


began = time.monotonic()
for step in range(first, steps):
    inputs = torch.randn(batch, width, device=device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ target)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 1000 == 0:
        print(f"step {step} loss {loss.item():.5f}", flush=True)
    if stopping:
        save(step + 1)
        print(f"asked to stop: checkpoint at step {step + 1}", flush=True)
        sys.exit(143)
torch.cuda.synchronize()
print(f"done: {steps - first} steps in {time.monotonic() - began:.1f} s, loss {loss.item():.5f}")

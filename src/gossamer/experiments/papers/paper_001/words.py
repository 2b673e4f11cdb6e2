"""The words of paper 001's page."""

TITLE = "Paper 001 again: locally private federated learning with correlated noise"
AVERAGED = (
    "One run gives both models: the last one, which is what the paper plots, and the averaged one, a running mean of "
    "released models, which costs no privacy. Noise is tight; the noise of Lemma IV.8 has rows of its own. Tuning on "
    "private data is not covered by epsilon: with such a step a proven guarantee is heuristic (tuned)."
)
LOGISTIC = (
    "Figure 3: R tau = 4 R samples for each of 20 learners; clip 1 and server step 1. The paper's protocol is the best "
    "step of BLT for all, and for independent noise its own. Accuracy in the table is the mean over all rounds. The 80 "
    "samples of a round in 100 dimensions can be separated, so its least loss is 0 and the dynamic regret of a sample "
    "is the mean loss."
)
IMAGES = (
    "Figure 4: two convolutions and two dense layers, ten learners, images dealt half evenly and half by digit, each "
    "used once. The paper states no step, clip or server step. Its protocol here: clip 1, server step 1, and the one "
    "step at which training without noise is nearest to 0.7 at round 500. Tuned: step, clip and server step by "
    "coordinate descent in the final accuracy; Toeplitz and optimised noise take those of BLT. --quick has no search. "
    "Toeplitz and the optimised factorisation keep every row of noise, 14.7 GB: they run on accelerators."
)

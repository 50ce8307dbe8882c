"""Train and evaluate one uncertainty method on one network and dataset.

python train.py method=dropreLU q=0.9 arch=resnet18          # one cell of the paper's Table 1
python train.py -m method=dropreLU q=0.8,0.9 seed=0,1        # a sweep: every combination
python train.py -m sweep=table1 seed=0,1                     # a sweep: every cell of Table 1 with two seeds
python train.py --help                                       # every group and hyperparameter
"""

try:
    from rbue.main import main
except KeyboardInterrupt:  # the imports take a second
    raise SystemExit("interrupted: start the same command again") from None

if __name__ == "__main__":
    main()

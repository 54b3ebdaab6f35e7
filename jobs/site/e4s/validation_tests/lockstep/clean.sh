#!/bin/bash
rm -rf runs checkpoints text.txt tokens.h5

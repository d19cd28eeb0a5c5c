"""Fine-tunes a language model on labelled sentences."""

from checkout import commands

if __name__ == "__main__":
    commands.run("finetune_text")

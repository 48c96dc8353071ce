"""From raw text to a pretrained, fine-tuned, deployable BERT.

The folders of the repository's root are packages of this one, through the links beside this file: `pipelines/` is
`beambert.pipelines`. Import a name from its package: `from beambert.tokenizer import Tokenizer`.
"""

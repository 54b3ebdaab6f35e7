// The files of a folder that belong to the tokenizer, or go with it, kept in checkpoints byte for byte.
#pragma once

#include <string>

#include "checkpoint/checkpoint.hpp"
#include "exchange/json.hpp"

namespace lockstep::exchange {

// Fills in kind and files (data::kind_of_files, data::read_tokenizer_files). What write_tokenizer() makes of bytes is
// read as bytes.
void read_tokenizer(const std::string& folder, checkpoint::Contents& contents);
// Writes them back. For bytes, which have no files, it writes a tokenizer.json that says the same.
void write_tokenizer(const std::string& folder, const checkpoint::Contents& contents);
// Into a config.json: the tokens that begin and end a text, as generation_config.json names them or the tokenizer does.
void add_token_numbers(Json& config, const checkpoint::Contents& contents);

}  // namespace lockstep::exchange

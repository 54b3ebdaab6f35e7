// The tokens of a run and their order. Windows of `length` tokens (plus one, the last target) tile the sources without
// overlap; sample number i is window permutation_epoch(i)(i mod windows): a function of (seed, sample number) only,
// independent of the number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace lockstep::data {

struct DatasetOptions {
    std::vector<std::string> paths;                   // token files, .bin files, text files, folders
    std::string tokenizer = "bytes";                  // for plain text, as for open_tokenizer
    std::shared_ptr<const Tokenizer> kept_tokenizer;  // for plain text, instead: a checkpoint's tokenizer
    std::int64_t length = 0;                          // tokens per sequence
    std::uint64_t seed = 1;
    bool random = true;                // false: in text order
    std::string key = "[data] train";  // key of the run description, named in errors
};

// Whether some of the paths are text files or folders, which need a tokenizer. Missing ones do not count.
bool has_plain_text(const std::vector<std::string>& paths);

class Dataset {
  public:
    // Usage errors: no or unknown paths, folders without text, mixed tokenizers, too few tokens for one sample. Damaged
    // errors: truncated or invalid token files.
    explicit Dataset(const DatasetOptions& options);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    std::int64_t tokens() const;      // of all sources
    std::int64_t windows() const;     // samples per epoch
    std::int64_t vocabulary() const;  // largest possible token + 1: by the tokenizer or, for .bin, by scanning
    double bytes_per_token() const;   // mean over all sources; 0: unknown (.bin files)
    // Splits off the last `fraction` of the windows (rounded up) as a dataset of their own, in text order. tokens() of
    // both still counts the sources. Usage errors: not between 0 and 1, fewer than two windows.
    Dataset split_off(double fraction);
    std::int64_t epoch_of(std::int64_t sample) const { return sample / windows(); }
    // Sample `number` as inputs[length] and targets[length], shifted by one. Thread-safe; does not allocate. A token
    // beyond the vocabulary: damaged error.
    void fetch(std::int64_t number, std::int32_t* inputs, std::int32_t* targets) const;
    std::string tokenizer_kind() const;  // "" if unknown (.bin files)
    const TokenizerFiles& tokenizer_files() const;
    // Identifies the data: of the sources' sizes and contents in order, not their names. Token files count by their
    // stored checksum, other files by their first and last MiB.
    std::uint64_t checksum() const;

  private:
    struct Implementation;
    explicit Dataset(std::shared_ptr<const Implementation> implementation);
    std::shared_ptr<const Implementation> implementation_;
};

}  // namespace lockstep::data

// The tokens of a run and the order in which they are seen. Windows of `length` tokens (and the one after, the last
// target) tile the sources without overlap; sample number i is window permutation_epoch(i)(i mod windows): a function
// of (seed, sample number) alone, the same for any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace lockstep::data {

struct DatasetOptions {
    std::vector<std::string> paths;                   // token files, .bin files, text files, folders
    std::string tokenizer = "bytes";                  // for plain text: "bytes" or the path of a .model file
    std::shared_ptr<const Tokenizer> kept_tokenizer;  // for plain text, instead: the one that a checkpoint holds
    std::int64_t length = 0;                          // tokens a sequence
    std::uint64_t seed = 1;
    bool random = true;                // or in the order of the text
    std::string key = "[data] train";  // of the run description, named in errors
};

class Dataset {
  public:
    // Usage errors: no or unknown paths, folders without text, sources of different tokenizers, fewer tokens than a
    // sample takes. Damaged errors: token files cut short or of an impossible content.
    explicit Dataset(const DatasetOptions& options);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    std::int64_t tokens() const;      // in all sources
    std::int64_t windows() const;     // samples an epoch
    std::int64_t vocabulary() const;  // largest token + 1 that may occur, by the tokenizer or, for .bin, by looking
    // Takes the last `fraction` of the windows (rounded up) out of this dataset and returns them as one of their own,
    // in text order. tokens() of both stays what the sources hold. Usage errors: not between 0 and 1, fewer than two
    // windows.
    Dataset split_off(double fraction);
    std::int64_t epoch_of(std::int64_t sample) const { return sample / windows(); }
    // Sample `number` as inputs[length] and targets[length], targets shifted by one. Any thread may call it; it
    // allocates nothing. A token beyond the vocabulary: damaged error.
    void fetch(std::int64_t number, std::int32_t* inputs, std::int32_t* targets) const;
    std::string tokenizer_kind() const;  // "" when not known (.bin files)
    std::string tokenizer_model() const;
    // Of the sources' sizes and contents in their order, not of their names: is this the data of before? Token files by
    // the checksum they carry, other files by their first and last MiB.
    std::uint64_t checksum() const;

  private:
    struct Implementation;
    explicit Dataset(std::shared_ptr<const Implementation> implementation);
    std::shared_ptr<const Implementation> implementation_;
};

}  // namespace lockstep::data

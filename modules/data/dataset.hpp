// The tokens of a run and their order. Windows of `length` tokens (plus one, the last target) tile a source without
// overlap, whatever documents are in them, or tile its documents, kept apart and padded; each source has its own
// permutation of its windows in every epoch. Sample number i is a function of (seed, weights, i) only, independent of
// the number of ranks: the mixture names the source and the sample's number there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace lockstep::data {

struct MixturePart {
    std::vector<std::string> paths;
    double weight = 0;  // above 0; its share of all counts, rounded to 2^-24
};

struct DatasetOptions {
    std::vector<std::string> paths;                   // token files, .bin files, text files, folders, patterns
    std::vector<MixturePart> mixture;                 // or several sources of such paths with their weights
    std::string tokenizer = "bytes";                  // for plain text, as for open_tokenizer
    std::shared_ptr<const Tokenizer> kept_tokenizer;  // for plain text, instead: a checkpoint's tokenizer
    std::string jsonl_field = "text";                 // the text of a line of JSON Lines
    // Of the tokens of JSON Lines, which stay in memory: of all sources together.
    std::uint64_t most_json_lines_bytes = std::uint64_t{8} << 30;
    std::int64_t length = 0;  // tokens per sequence
    std::uint64_t seed = 1;
    bool random = true;  // false: in text order
    // Keeps documents apart: none predicts another's tokens, and each begins at a multiple of `document_alignment`
    // tokens in its window, behind padding that repeats the last token of the one before. A document cut by the
    // end of a window starts over in the next one. Memory: 8 bytes per document, 16 where the alignment is above 1.
    bool separate_documents = false;
    std::int64_t document_alignment = 1;  // tokens; the length is a multiple
    std::string key = "[data] train";     // key of the run description, named in errors
};

// Whether some of the paths stand for text, which needs a tokenizer. What cannot be told, such as a missing path, does
// not count.
bool has_plain_text(const std::vector<std::string>& paths);
// Whether all of them are token files of our own: neither text nor .bin files, which do not name their tokenizer.
bool names_all_tokenizers(const std::vector<std::string>& paths);

// One source of a data set.
struct SourceSummary {
    std::string name;  // its first path, and how many more
    double share = 1;  // of the samples
    std::int64_t tokens = 0, windows = 0;
};

class Dataset {
  public:
    // Usage errors: no or unknown paths, folders without text, mixed tokenizers, too few tokens for one sample; with
    // separate documents also files that do not say where documents end, and documents of one token each. Damaged
    // errors: truncated or invalid token files.
    explicit Dataset(const DatasetOptions& options);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    std::int64_t tokens() const;      // of all sources, without padding
    std::int64_t windows() const;     // of all sources: samples per epoch, which in a mixture is a count and no pass
    std::int64_t vocabulary() const;  // largest possible token + 1: by the tokenizer or, for .bin, by scanning
    double bytes_per_token() const;   // mean over all sources; 0: unknown (.bin files)
    // Splits off the last `fraction` of each source's windows (rounded up) as a dataset of their own, in text order;
    // with several sources each has in it the share of its windows, and one epoch is each window once. tokens() of both
    // still counts the sources. Usage errors: not between 0 and 1, a source of fewer than two windows.
    Dataset split_off(double fraction);
    std::int64_t epoch_of(std::int64_t sample) const { return sample / windows(); }
    // Sample `number` as inputs[length] and targets[length], shifted by one. With separate documents the target of a
    // document's last token and of padding is -1. Thread-safe; does not allocate. A token beyond the vocabulary:
    // damaged error.
    void fetch(std::int64_t number, std::int32_t* inputs, std::int32_t* targets) const;
    // Of each of its `length` positions, the positions in the sample at which its document begins and ends, with its
    // padding, the end exclusive: where the window cuts it, 0 and length. Only with separate documents. Thread-safe;
    // does not allocate.
    void fetch_documents(std::int64_t number, std::int32_t* starts, std::int32_t* ends) const;
    // Targets of the sample that are not -1, without reading tokens: length unless documents are separate.
    std::int64_t counted_tokens(std::int64_t number) const;
    bool separates_documents() const;
    // Of all sources together; after split_off still of both parts. 0 unless documents are separate.
    std::int64_t documents() const;
    double padding_share() const;                // of the padded tokens, those that are padding: 0 to 1
    std::vector<SourceSummary> sources() const;  // one, unless it is a mixture
    // Samples of each source before sample `number`.
    std::vector<std::int64_t> counts_before(std::int64_t number) const;
    std::string tokenizer_kind() const;  // "" if unknown (.bin files)
    const TokenizerFiles& tokenizer_files() const;
    // Identifies the data: of the sources' sizes and contents in order, not their names, and of their weights. Token
    // files count by their stored checksum, other files by their first and last MiB. With separate documents also of
    // where they begin and end in the windows.
    std::uint64_t checksum() const;

  private:
    struct Implementation;
    explicit Dataset(std::shared_ptr<const Implementation> implementation);
    std::shared_ptr<const Implementation> implementation_;
};

}  // namespace lockstep::data

#include "data/huggingface/tokenizer.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "data/huggingface/byte_level.hpp"
#include "data/huggingface/divider.hpp"
#include "data/huggingface/normal_form.hpp"
#include "data/huggingface/pair_encoder.hpp"
#include "data/huggingface/tokenizer_json.hpp"
#include "data/part_encoder.hpp"

namespace lockstep::data {
namespace {

using namespace huggingface;

// What is looked at behind the end of a part; four times as much each time that is too little.
constexpr std::size_t first_margin = 4096;

class HuggingfaceTokenizer final : public Tokenizer, private PartEncoder {
  public:
    HuggingfaceTokenizer(TokenizerFiles files, const TokenizerJson& json, const std::string& origin)
        : files_(std::move(files)), divider_(json), pairs_(json) {
        for (const auto& [token, id] : json.vocabulary) spell(id, bytes_spelt(token).value_or(token));
        for (const auto& token : json.added) spell(token.id, token.content);
        boundary_ = find_boundary(json, origin);
        // No warning: every rank makes the tokenizer, and all ranks' warnings are printed.
        if (const int unknown = pairs_.unknown_bytes(); unknown > 0 && json.unknown < 0)
            log::info("{} has no token for {} of the 256 byte values; they are dropped from texts", origin, unknown);
    }

    std::string kind() const override { return "huggingface"; }
    const TokenizerFiles& files() const override { return files_; }
    std::int64_t vocabulary() const override { return vocabulary_; }
    std::int32_t boundary() const override { return boundary_; }
    const PartEncoder* parts() const override { return this; }

    std::vector<std::int32_t> encode(std::string_view text) const override { return encode_from(text, true); }
    std::vector<std::int32_t> encode_continued(std::string_view text) const override {
        return encode_from(text, false);
    }

    std::string decode(const std::vector<std::int32_t>& tokens) const override {
        std::string text;
        for (const auto token : tokens) {
            const auto found = spellings_.find(token);
            const bool known = found != spellings_.end() && !found->second.empty();
            text += known ? found->second : "\xEF\xBF\xBD";  // U+FFFD
        }
        return text;
    }

  private:
    struct Worker final : PieceTaker {
        Worker(const PairEncoder& encoder) : pairs(encoder) {}
        void take_piece(std::string_view piece) override { pairs.encode(piece, merging, *tokens); }
        void take_token(std::int32_t token) override { tokens->push_back(token); }
        const PairEncoder& pairs;
        PairEncoder::Scratch merging;
        Divider::Scratch dividing;
        std::vector<std::int32_t>* tokens = nullptr;
    };

    // Lends a worker to a thread.
    class Lent {
      public:
        Lent(const HuggingfaceTokenizer& owner, std::vector<std::int32_t>& tokens) : owner_(owner) {
            {
                const std::lock_guard lock(owner_.guard_);
                if (!owner_.idle_.empty()) {
                    worker_ = std::move(owner_.idle_.back());
                    owner_.idle_.pop_back();
                }
            }
            if (!worker_) worker_ = std::make_unique<Worker>(owner_.pairs_);
            worker_->tokens = &tokens;
        }
        ~Lent() {
            const std::lock_guard lock(owner_.guard_);
            owner_.idle_.push_back(std::move(worker_));
        }
        Lent(const Lent&) = delete;
        Lent& operator=(const Lent&) = delete;
        Worker* operator->() const { return worker_.get(); }
        Worker& operator*() const { return *worker_; }

      private:
        const HuggingfaceTokenizer& owner_;
        std::unique_ptr<Worker> worker_;
    };

    void spell(std::int32_t id, std::string bytes) {
        vocabulary_ = std::max(vocabulary_, std::int64_t{id} + 1);
        spellings_[id] = std::move(bytes);
    }

    std::int32_t find_boundary(const TokenizerJson& json, const std::string& origin) const {
        const auto id_of = [&](const std::string& content) {
            for (const auto& token : json.added)
                if (token.content == content) return token.id;
            const auto found = json.vocabulary.find(content);
            return found == json.vocabulary.end() ? -1 : found->second;
        };
        for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
            const TokenizerFile* file = find_file(files_, name);
            const std::string token = file ? end_token(file->contents, origin + ": " + name) : "";
            if (token.empty()) continue;
            if (const std::int32_t id = id_of(token); id >= 0) return id;
            throw usage_error("{}: eos_token of {} is '{}', which tokenizer.json does not have", origin, name, token);
        }
        for (const char* usual : {"<|endoftext|>", "<|end_of_text|>", "<|im_end|>",
                                  "<\xEF\xBD\x9C"
                                  "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                                  "</s>", "<eos>"})
            if (const std::int32_t id = id_of(usual); id >= 0) return id;
        return -1;
    }

    std::vector<std::int32_t> encode_from(std::string_view text, bool fresh) const {
        std::vector<std::int32_t> tokens;
        Lent worker(*this, tokens);
        Place place{0, fresh};
        divider_.divide(text, false, place, text.size(), worker->dividing, *worker);
        return tokens;
    }

    bool divides() const override { return divider_.restarts(); }

    bool encode_part(std::string_view document, Place& from, std::size_t end, bool patient,
                     std::vector<std::int32_t>& tokens) const override {
        Lent worker(*this, tokens);
        const std::size_t before = tokens.size();
        for (std::size_t margin = first_margin;; margin *= 4) {
            const std::size_t window =
                end + margin < document.size() ? whole_characters_before(document, end + margin) : document.size();
            if (divider_.divide(document.substr(0, window), window < document.size(), from, end, worker->dividing,
                                *worker))
                return true;
            tokens.resize(before);
            if (!patient) return false;
        }
    }

    TokenizerFiles files_;
    Divider divider_;
    PairEncoder pairs_;
    std::unordered_map<std::int32_t, std::string> spellings_;  // a damaged file may number few tokens by millions
    std::int64_t vocabulary_ = 0;                              // the largest number + 1
    std::int32_t boundary_ = -1;
    mutable std::mutex guard_;
    mutable std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_huggingface(TokenizerFiles files, const std::string& origin) {
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    const TokenizerFile* json = find_file(files, huggingface_file_name);
    if (!json) throw damaged_error("{} has no {}", origin, huggingface_file_name);
    const TokenizerJson read = read_tokenizer_json(json->contents, origin);
    return std::make_unique<HuggingfaceTokenizer>(std::move(files), read, origin);
}

}  // namespace lockstep::data

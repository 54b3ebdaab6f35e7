// tokenizer.json, and with what is read a text encoded and decoded. Parts: tokenizer.json, tokenizer_config.json, the
// text.
#include "data/tokenizer.hpp"
#include "data/tokenizer_files.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 3);
    fuzz::write_file("tokenizer/tokenizer.json", parts[0]);
    fuzz::write_file("tokenizer/tokenizer_config.json", parts[1]);
    constexpr std::uint64_t cache = std::uint64_t{2} << 20;  // of pieces, whatever the tokenizer
    const auto read = [&] {
        const auto files = data::read_tokenizer_files(fuzz::folder() + "/tokenizer");
        const auto tokenizer = data::make_tokenizer("huggingface", files);
        fuzz::require(data::same_tokenizer("huggingface", files, tokenizer->kind(), tokenizer->files()),
                      "a tokenizer is not the same as itself");
        const std::vector<std::int32_t> tokens = tokenizer->encode(parts[2]);
        for (const std::int32_t token : tokens)
            fuzz::require(token >= 0 && token < tokenizer->vocabulary(), "a token outside the vocabulary");
        tokenizer->decode(tokens);
        tokenizer->decode({0, -1, tokenizer->boundary(), static_cast<std::int32_t>(tokenizer->vocabulary())});
        tokenizer->encode_continued(parts[2]);
    };
    fuzz::judge(size, read, cache);
    return 0;
}

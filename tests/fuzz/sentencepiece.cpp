// Sentencepiece models, and with what is read a text encoded and decoded. Parts: the text, the model.
#include "data/sentencepiece.hpp"
#include "fuzz/harness.hpp"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string> parts = fuzz::parts(fuzz::text_of(data, size), 2);
    fuzz::judge(size, [&] {
        const auto tokenizer = data::make_sentencepiece(parts[1], "tokenizer.model");
        const std::vector<std::int32_t> tokens = tokenizer->encode(parts[0]);
        for (const std::int32_t token : tokens)
            fuzz::require(token >= 0 && token < tokenizer->vocabulary(), "a token outside the vocabulary");
        tokenizer->decode(tokens);
        tokenizer->encode_continued(parts[0]);
        tokenizer->decode({0, -1, tokenizer->boundary(), static_cast<std::int32_t>(tokenizer->vocabulary())});
    });
    return 0;
}

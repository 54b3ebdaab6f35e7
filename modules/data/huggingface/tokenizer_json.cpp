#include "data/huggingface/tokenizer_json.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "data/huggingface/json_object.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::int32_t most_id = (1 << 22) - 1;
constexpr std::size_t longest_token = 4096, longest_added_token = 1024, most_divisions = 16;

// What use_regex of ByteLevel stands for: GPT-2's words, from the paper's published encoder.
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Error not_implemented(const JsonObject& object, const char* key, const std::string& value,
                      const std::string& implemented) {
    return usage_error("{}: {} = {} is not implemented; {}", object.origin(), object.key(key), value, implemented);
}

std::string type_of(const JsonObject& object) {
    return object.text("type");
}

// The parts of a Sequence, or the component itself; none for null.
std::vector<JsonObject> parts_of(const JsonObject& owner, const char* name, const char* list_name) {
    std::vector<JsonObject> parts;
    if (!owner.find(name)) return parts;
    const JsonObject whole = owner.object(name);
    if (type_of(whole) != "Sequence") return {whole};
    whole.allow({"type", list_name});
    const Json& list = whole.array(list_name);
    if (list.size() > most_divisions)
        throw damaged_error("{} is damaged: {} has {} parts; the limit is {}", whole.origin(), whole.key(list_name),
                            list.size(), most_divisions);
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string key = whole.key(list_name) + "[" + std::to_string(i) + "]";
        parts.emplace_back(list[i], whole.origin(), key);
        if (type_of(parts.back()) == "Sequence")
            throw usage_error("{}: {} is a Sequence inside a Sequence, which is not implemented", whole.origin(), key);
    }
    return parts;
}

void read_normalizer(const JsonObject& root, TokenizerJson& out) {
    for (const JsonObject& part : parts_of(root, "normalizer", "normalizers")) {
        part.allow({"type"});
        if (type_of(part) != "NFC") throw not_implemented(part, "type", type_of(part), "NFC and null are");
        out.composes = true;
    }
}

Behaviour read_behaviour(const JsonObject& part) {
    const std::string word = part.text("behavior");
    const std::vector<std::pair<const char*, Behaviour>> words = {
        {"Isolated", Behaviour::isolated},
        {"Removed", Behaviour::removed},
        {"Contiguous", Behaviour::contiguous},
        {"MergedWithPrevious", Behaviour::merged_with_previous},
        {"MergedWithNext", Behaviour::merged_with_next}};
    const auto found = std::find_if(words.begin(), words.end(), [&](const auto& one) { return one.first == word; });
    if (found == words.end()) throw damaged_error("{} is damaged: {} is {}", part.origin(), part.key("behavior"), word);
    return found->second;
}

std::string place_of(const JsonObject& object, const char* name) {
    return object.origin() + ": " + object.key(name);
}

Division read_split(const JsonObject& part) {
    part.allow({"type", "pattern", "behavior", "invert"});
    Division division;
    const JsonObject pattern = part.object("pattern");
    pattern.allow({"Regex", "String"});
    division.literal = !pattern.find("Regex");
    const char* name = division.literal ? "String" : "Regex";
    division.pattern = pattern.text(name);
    division.key = place_of(pattern, name);
    if (division.pattern.empty()) throw damaged_error("{} is damaged: {} is empty", part.origin(), pattern.key(name));
    division.behaviour = read_behaviour(part);
    division.invert = part.flag("invert");
    return division;
}

Division read_digits(const JsonObject& part) {
    part.allow({"type", "individual_digits"});
    Division division;
    division.pattern = part.flag("individual_digits") ? R"(\p{N})" : R"(\p{N}+)";
    division.key = place_of(part, "type");
    return division;
}

Division read_byte_level(const JsonObject& part) {
    part.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    Division division;
    division.adds_space = part.flag("add_prefix_space");
    if (part.flag_or("use_regex", true)) division.pattern = gpt2_pattern;
    division.key = place_of(part, "use_regex");
    return division;
}

void read_pre_tokenizer(const JsonObject& root, TokenizerJson& out) {
    bool to_bytes = false;
    for (const JsonObject& part : parts_of(root, "pre_tokenizer", "pretokenizers")) {
        if (to_bytes)
            throw usage_error("{}: {} follows ByteLevel, which must be the last", root.origin(), part.key("type"));
        const std::string type = type_of(part);
        if (type == "Split") {
            out.divisions.push_back(read_split(part));
        } else if (type == "Digits") {
            out.divisions.push_back(read_digits(part));
        } else if (type == "ByteLevel") {
            out.divisions.push_back(read_byte_level(part));
            to_bytes = true;
        } else {
            throw not_implemented(part, "type", type, "Split, Digits, ByteLevel and Sequence are");
        }
    }
    if (!to_bytes)
        throw usage_error("{}: pre_tokenizer has no ByteLevel; only byte-level BPE is implemented", root.origin());
}

// They add special tokens, which `encode` does not, or change offsets.
void check_post_processor(const JsonObject& root) {
    for (const JsonObject& part : parts_of(root, "post_processor", "processors")) {
        const std::string type = type_of(part);
        if (type != "ByteLevel" && type != "TemplateProcessing" && type != "RobertaProcessing" &&
            type != "BertProcessing")
            throw not_implemented(part, "type", type,
                                  "ByteLevel, TemplateProcessing, RobertaProcessing and BertProcessing are");
    }
}

void check_decoder(const JsonObject& root) {
    for (const JsonObject& part : parts_of(root, "decoder", "decoders"))
        if (type_of(part) != "ByteLevel") throw not_implemented(part, "type", type_of(part), "ByteLevel is");
}

void read_vocabulary(const JsonObject& model, TokenizerJson& out) {
    const JsonObject object = model.object("vocab");
    const Json& vocabulary = *model.find("vocab");
    if (vocabulary.empty()) throw damaged_error("{} is damaged: {} is empty", model.origin(), model.key("vocab"));
    std::vector<bool> taken(static_cast<std::size_t>(most_id) + 1);
    out.vocabulary.reserve(vocabulary.size());
    for (const auto& [token, id] : vocabulary.items()) {
        if (!id.is_number_unsigned() || id.get<std::uint64_t>() > static_cast<std::uint64_t>(most_id))
            throw damaged_error("{} is damaged: {} has a token whose number is not between 0 and {}", model.origin(),
                                model.key("vocab"), most_id);
        if (token.size() > longest_token)
            throw damaged_error("{} is damaged: {} has a token of {} bytes; the limit is {}", model.origin(),
                                model.key("vocab"), token.size(), longest_token);
        const auto number = id.get<std::int32_t>();
        if (taken[static_cast<std::size_t>(number)])
            throw damaged_error("{} is damaged: {} has two tokens with the number {}", model.origin(),
                                model.key("vocab"), number);
        taken[static_cast<std::size_t>(number)] = true;
        out.vocabulary.emplace(token, number);
    }
}

std::pair<std::string, std::string> read_merge(const JsonObject& model, const Json& merge) {
    if (merge.is_string()) {
        const auto text = merge.get<std::string>();
        const auto space = text.find(' ');
        if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
            return {text.substr(0, space), text.substr(space + 1)};
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    throw damaged_error("{} is damaged: {} has an entry that is neither \"a b\" nor [\"a\", \"b\"]", model.origin(),
                        model.key("merges"));
}

void read_merges(const JsonObject& model, TokenizerJson& out) {
    const auto id_of = [&](const std::string& token) {
        const auto found = out.vocabulary.find(token);
        if (found == out.vocabulary.end())
            throw damaged_error("{} is damaged: {} uses a token that {} lacks", model.origin(), model.key("merges"),
                                model.key("vocab"));
        return found->second;
    };
    const Json& merges = model.array("merges");
    out.merges.reserve(merges.size());
    for (const Json& merge : merges) {
        const auto [left, right] = read_merge(model, merge);
        out.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
    }
}

void read_model(const JsonObject& root, TokenizerJson& out) {
    const JsonObject model = root.object("model");
    if (model.find("type") && type_of(model) != "BPE")
        throw not_implemented(model, "type", type_of(model), "BPE is; sentencepiece models come as tokenizer.model");
    model.allow({"type", "dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (const Json* dropout = model.find("dropout"); dropout && *dropout != 0.0)
        throw not_implemented(model, "dropout", dropout->dump(), "null is");
    if (model.flag_or("byte_fallback", false))
        throw not_implemented(model, "byte_fallback", "true", "byte-level BPE needs none");
    out.ignores_merges = model.flag_or("ignore_merges", false);
    out.fuses_unknown = model.flag_or("fuse_unk", false);
    read_vocabulary(model, out);
    read_merges(model, out);
    if (!model.find("unk_token")) return;
    const auto unknown = out.vocabulary.find(model.text("unk_token"));
    if (unknown == out.vocabulary.end())
        throw damaged_error("{} is damaged: {} is not in {}", model.origin(), model.key("unk_token"),
                            model.key("vocab"));
    out.unknown = unknown->second;
}

AddedToken read_added_token(const JsonObject& entry) {
    entry.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.content = entry.text("content");
    token.id = entry.number("id", most_id);
    token.single_word = entry.flag("single_word");
    token.lstrip = entry.flag("lstrip");
    token.rstrip = entry.flag("rstrip");
    token.before_normalizing = !entry.flag("normalized");
    static_cast<void>(entry.flag("special"));
    if (token.content.empty() || token.content.size() > longest_added_token)
        throw damaged_error("{} is damaged: {} has {} bytes; it must have 1 to {}", entry.origin(),
                            entry.key("content"), token.content.size(), longest_added_token);
    return token;
}

// Those that the vocabulary lacks are numbered in their order behind it, whatever numbers they have: so does the
// library that wrote the file. Of one that is named twice the later flags count, there too.
void read_added_tokens(const JsonObject& root, TokenizerJson& out) {
    if (!root.find("added_tokens")) return;
    const Json& list = root.array("added_tokens");
    const auto size = static_cast<std::int32_t>(out.vocabulary.size());
    std::int32_t most = -1;
    std::unordered_map<std::string, std::size_t> seen;  // their places in out.added
    for (std::size_t i = 0; i < list.size(); ++i) {
        const JsonObject entry(list[i], root.origin(), "added_tokens[" + std::to_string(i) + "]");
        const AddedToken token = read_added_token(entry);
        const auto known = out.vocabulary.find(token.content);
        const auto [again, is_new] = seen.emplace(token.content, out.added.size());
        const std::int32_t id = known != out.vocabulary.end() ? known->second
                                : is_new                      ? std::max(most + 1, size)
                                                              : out.added[again->second].id;
        if (token.id != id)
            throw damaged_error("{} is damaged: {} is {}, but the tokens before make it {}", root.origin(),
                                entry.key("id"), token.id, id);
        most = std::max(most, id);
        if (is_new)
            out.added.push_back(token);
        else
            out.added[again->second] = token;
    }
}

}  // namespace

TokenizerJson read_tokenizer_json(const std::string& text, const std::string& origin) {
    const Json json = bounded_json(text, origin);
    const JsonObject root(json, origin, "");
    // Truncation and padding are for batches of one shape; they do not concern a text's tokens.
    root.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                "decoder", "model"});
    TokenizerJson out;
    read_model(root, out);
    read_normalizer(root, out);
    read_pre_tokenizer(root, out);
    check_post_processor(root);
    check_decoder(root);
    read_added_tokens(root, out);
    return out;
}

std::string end_token(const std::string& text, const std::string& origin) {
    const Json json = bounded_json(text, origin);
    const JsonObject root(json, origin, "");
    const Json* token = root.find("eos_token");
    if (!token) return "";
    return token->is_string() ? token->get<std::string>() : root.object("eos_token").text("content");
}

}  // namespace lockstep::data::huggingface

// What a model is: sizes, layers, and the named presets.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "config/registry.hpp"
#include "config/words.hpp"

namespace lockstep::config {

// The shape of one layer: everything but the mixer that may differ between layers.
struct LayerShape {
    std::int64_t number = 0, window = 0;  // window 0: none
    std::int64_t heads = 0, kv_heads = 0, head_width = 0;
    std::int64_t query_columns() const { return heads * head_width; }
};

// One of [[model.layers]]: `count` consecutive layers. What it does not give is as in [model].
struct LayerTable {
    static constexpr std::int64_t not_given = -1;
    std::int64_t count = 1;
    std::string mixer;  // "": not given
    std::int64_t window = not_given, heads = not_given, kv_heads = not_given, head_width = not_given;
    bool operator==(const LayerTable&) const = default;
};

// Low-rank updates of linear layers, which are trained alone (model/adapters.hpp).
struct Adapters {
    std::int64_t rank = 0;                   // 0: none
    double alpha = 0;                        // 0: as the rank
    std::vector<std::string> match = {"*"};  // patterns of layers' names
    double dropout = 0;                      // of what they read, while they are trained
    bool operator==(const Adapters&) const = default;
};

struct ModelDescription {
    std::string preset;
    std::vector<std::string> mixers = {"attention"};  // registered ones, repeated over the blocks
    std::int64_t width = 0, layers = 0;
    // Repeated over the blocks, as the mixers are.
    std::vector<std::int64_t> heads = {0};
    std::vector<std::int64_t> kv_heads = {0};     // 0: as many as heads
    std::vector<std::int64_t> head_widths = {0};  // 0: width / heads
    std::int64_t mlp_width = 0;                   // 0: 4 · width
    std::int64_t vocabulary = 0, context = 0;
    NormKind norm = NormKind::rms;
    double norm_epsilon = 1e-6;
    MlpKind mlp = MlpKind::swiglu;
    Position position = Position::rope;
    double rope_theta = 10000;
    RopeScaling rope_scaling = RopeScaling::none;
    // Of the scaling: Llama 3.1's published values.
    double rope_factor = 8, rope_low = 1, rope_high = 4;
    std::int64_t rope_original_context = 8192;
    bool qk_norm = false;  // RMSNorm over each head's queries and keys, before the rotation
    // Tokens that attention sees, the query's own included; repeated over the blocks. 0: all.
    std::vector<std::int64_t> windows = {0};
    double score_cap = 0, logit_cap = 0;  // 0: none
    bool tied_head = true;
    Bias bias = Bias::none;
    std::vector<std::string> frozen;  // parameter-name patterns that are not trained
    Adapters adapters;
    std::vector<LayerTable> layer_tables;   // resolve() makes the lists of them
    OptionSections options{Family::mixer};  // [model.NAME]

    const std::string& mixer(std::int64_t block) const {
        return mixers[static_cast<std::size_t>(block) % mixers.size()];
    }
    LayerShape layer(std::int64_t block) const;
    // After how many blocks mixers and shapes repeat together; the number of layers where they do not.
    std::int64_t period() const;
    bool is_hybrid() const { return mixers.size() > 1; }  // once resolved
    bool operator==(const ModelDescription&) const = default;
};

// Blocks of one kind have equal parameters and keep equal tensors: mixer, heads, kv_heads, head_width.
using BlockKind = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>;
BlockKind kind_of_block(const ModelDescription& model, std::int64_t block);

std::vector<std::string> preset_names();
ModelDescription preset(const std::string& name);  // resolved; unknown: usage error that names the nearest
// Before resolve(), so that keys given with it decide what follows from them. `place` begins the error ("file:line: ").
ModelDescription preset_values(const std::string& name, const std::string& place);
// Each key alone, against its range or its words. A description that was not read from TOML needs this before
// resolve(), which multiplies sizes. Usage errors.
void check_ranges(const ModelDescription& model);
// The registered ones of the model's mixers, each once, in the order of the blocks.
std::vector<const Kind*> mixers_of(const ModelDescription& model);
// Whether a mixer of the model reads the keys that attention has for itself.
bool has_attention_keys(const ModelDescription& model);
bool has_equal_heads(const ModelDescription& model);       // all layers
std::int64_t widest_layer(const ModelDescription& model);  // columns of all heads' queries
std::string mixers_text(const ModelDescription& model);    // "attention"; "3 ttt-linear and 1 attention in turn"

// Fills in what follows from other keys: the lists from tables of layers, kv_heads, head_widths, mlp_width, and what
// the mixers resolve. Of a list, only as many are kept as decide those of all layers.
void resolve(ModelDescription& model);
void check(const ModelDescription& model);  // sizes that fit together; usage errors

}  // namespace lockstep::config

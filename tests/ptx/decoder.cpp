#include "ptx/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "ptx/control_flow.hpp"

namespace lockstep::ptx {

namespace {

std::uint32_t align_up(std::uint32_t value, std::uint32_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

const Families& families() {
    static const Families table = [] {
        Families result;
        add_arithmetic_families(result);
        add_memory_families(result);
        add_collective_families(result);
        return result;
    }();
    return table;
}

constexpr std::pair<std::string_view, Special> special_names[] = {
    {"%tid.x", Special::tid_x},
    {"%tid.y", Special::tid_y},
    {"%tid.z", Special::tid_z},
    {"%ntid.x", Special::ntid_x},
    {"%ntid.y", Special::ntid_y},
    {"%ntid.z", Special::ntid_z},
    {"%ctaid.x", Special::ctaid_x},
    {"%ctaid.y", Special::ctaid_y},
    {"%ctaid.z", Special::ctaid_z},
    {"%nctaid.x", Special::nctaid_x},
    {"%nctaid.y", Special::nctaid_y},
    {"%nctaid.z", Special::nctaid_z},
    {"%laneid", Special::laneid},
    {"%warpid", Special::warpid},
    {"%nwarpid", Special::nwarpid},
    {"%lanemask_eq", Special::lanemask_eq},
    {"%lanemask_lt", Special::lanemask_lt},
    {"%lanemask_le", Special::lanemask_le},
    {"%lanemask_gt", Special::lanemask_gt},
    {"%lanemask_ge", Special::lanemask_ge},
    {"%dynamic_smem_size", Special::dynamic_smem_size},
    {"%total_smem_size", Special::total_smem_size},
};

constexpr int deepest_call = 16;

}  // namespace

Modifiers::Modifiers(std::string_view opcode) {
    const auto dot = opcode.find('.');
    base_ = opcode.substr(0, dot);
    while (!opcode.empty()) {
        const auto end = std::min(opcode.find('.'), opcode.size());
        if (opcode.data() != base_.data()) left_.push_back(opcode.substr(0, end));
        opcode.remove_prefix(std::min(end + 1, opcode.size()));
    }
}

bool Modifiers::take(std::string_view word) {
    const auto found = std::find(left_.begin(), left_.end(), word);
    if (found == left_.end()) return false;
    left_.erase(found);
    return true;
}

Type Modifiers::type() {
    if (left_.empty()) return Type::none;
    const Type result = type_of(left_.front());
    if (result != Type::none) left_.erase(left_.begin());
    return result;
}

Rounding Modifiers::rounding() {
    Rounding result = Rounding::nearest;
    take_one_of<Rounding>({{"rn", Rounding::nearest},
                           {"rz", Rounding::zero},
                           {"rm", Rounding::down},
                           {"rp", Rounding::up},
                           {"rni", Rounding::nearest_integer},
                           {"rzi", Rounding::zero_integer},
                           {"rmi", Rounding::down_integer},
                           {"rpi", Rounding::up_integer}},
                          result);
    return result;
}

Decoder::Decoder(const ParsedModule& module, const Function& function)
    : module_(module), function_(function), kernel_(std::make_unique<Kernel>()) {}

void Decoder::unknown(std::string_view why) const {
    throw usage_error("PTX line {}: {}: {}", statement_ ? statement_->line : 0,
                      statement_ ? statement_->opcode : std::string_view{}, why);
}

Slot Decoder::new_slot(int bytes) {
    if (bytes == 0) return kernel_->predicates++;
    const Slot result = kernel_->slots;
    kernel_->slots += static_cast<Slot>(std::max(bytes, 2)) / 2;
    return result;
}

Slot Decoder::constant(int bytes, std::uint64_t value) {
    if (bytes < 8) value &= (std::uint64_t{1} << 8 * bytes) - 1;
    const auto [place, is_new] = constants_.try_emplace({bytes, value}, 0);
    if (is_new) {
        place->second = new_slot(bytes);
        kernel_->constants.push_back({place->second, static_cast<std::uint8_t>(bytes), value});
    }
    return place->second;
}

const Operand& Decoder::operand(std::size_t i) const {
    if (i >= statement_->operands.size()) unknown("an operand is missing");
    return statement_->operands[i];
}

int Decoder::place_bytes(const Operand& operand) const {
    if (operand.kind != Operand::Kind::place) return 0;
    return std::max(bytes_of(instance_->function->registers[operand.index]), 2);
}

Slot Decoder::slot(const Operand& operand, int bytes, bool wider) {
    bytes = std::max(bytes, 2);
    switch (operand.kind) {
        case Operand::Kind::place: {
            const int has = bytes_of(instance_->function->registers[operand.index]);
            if (has != bytes && !(wider && has > bytes)) unknown("a register has another size than the instruction");
            return instance_->registers[operand.index];
        }
        case Operand::Kind::special: {
            const auto found = std::find_if(std::begin(special_names), std::end(special_names),
                                            [&](const auto& special) { return special.first == operand.name; });
            if (found == std::end(special_names)) unknown("the special register " + operand.name + " is not known");
            const auto [place, is_new] = specials_.try_emplace(operand.name, 0);
            if (is_new) {
                place->second = new_slot(4);
                kernel_->specials.push_back({found->second, place->second});
            }
            return place->second;
        }
        case Operand::Kind::integer:
        case Operand::Kind::twofold:
        case Operand::Kind::single:
            return constant(bytes, operand.value);
        case Operand::Kind::sink:
            return no_slot;
        default:
            unknown("an operand is not a register or a number");
    }
}

Slot Decoder::predicate(const Operand& operand, bool& negated) {
    negated = operand.negated;
    if (operand.kind == Operand::Kind::integer) return operand.value != 0 ? 0 : 1;
    if (operand.kind == Operand::Kind::sink) return no_slot;
    if (operand.kind != Operand::Kind::place || instance_->function->registers[operand.index] != Type::pred)
        unknown("an operand is not a predicate");
    return instance_->registers[operand.index];
}

void Decoder::set_offset_to_symbol(const Operand& operand) {
    const auto own = instance_->variables.find(operand.name);
    const auto& found = own != instance_->variables.end() ? *own : [&]() -> const auto& {
        const auto shared = module_variables_.find(operand.name);
        if (shared == module_variables_.end()) unknown(operand.name + " is not declared");
        return *shared;
    }
    ();
    made_.space = found.second.first;
    made_.offset = operand.offset + found.second.second;
}

void Decoder::address(const Operand& operand) {
    if (operand.kind != Operand::Kind::address) unknown("an operand is not an address");
    const Operand& base = operand.parts[0];
    const Space asked = made_.space;
    made_.offset = 0;
    if (base.kind == Operand::Kind::symbol) {
        set_offset_to_symbol(base);
        if (asked != made_.space && !(asked == Space::parameter && made_.space == Space::local) &&
            asked != Space::generic)
            unknown(base.name + " is in another state space");
    } else if (base.kind == Operand::Kind::place) {
        const int bytes = place_bytes(base);
        if (bytes < 4) unknown("an address has 32 or 64 bits");
        made_.from_bytes = static_cast<std::uint8_t>(bytes);
        made_.a = slot(base, bytes);
    }
    made_.offset += operand.offset;
}

std::uint32_t Decoder::add_list(const std::vector<Slot>& slots) {
    const auto result = static_cast<std::uint32_t>(kernel_->lists.size());
    kernel_->lists.insert(kernel_->lists.end(), slots.begin(), slots.end());
    return result;
}

std::uint32_t Decoder::list(const Operand& operand, int bytes, std::size_t count, bool wider) {
    std::vector<Slot> slots;
    if (operand.kind == Operand::Kind::list)
        for (const Operand& part : operand.parts) slots.push_back(slot(part, bytes, wider));
    else
        slots.push_back(slot(operand, bytes, wider));
    if (slots.size() != count) unknown(fmt::format("{} registers where {} are expected", slots.size(), count));
    return add_list(slots);
}

void Decoder::set(Group group, Op op, Type type) {
    made_.group = group;
    made_.op = op;
    made_.type = type;
}

std::uint32_t Decoder::place_local(std::uint32_t bytes, std::uint32_t alignment) {
    const auto begin = align_up(kernel_->local_bytes, std::max(alignment, 8u));
    kernel_->local_bytes = begin + bytes;
    return begin;
}

void Decoder::call() {
    const auto& operands = statement_->operands;
    const auto name = std::find_if(operands.begin(), operands.end(),
                                   [](const Operand& one) { return one.kind == Operand::Kind::symbol; });
    if (name == operands.end()) unknown("an indirect call");
    const auto callee = std::find_if(module_.functions.begin(), module_.functions.end(), [&](const Function& one) {
        return !one.entry && one.defined && one.name == name->name;
    });
    if (callee == module_.functions.end()) unknown(name->name + " is not defined here");
    if (++depth_ > deepest_call) unknown("calls are too deep, or recursive");
    Instance inlined;
    inlined.function = &*callee;
    const auto pass = [&](const std::vector<Operand>& given, const std::vector<Variable>& wanted) {
        if (given.size() != wanted.size()) unknown("a call has another number of parameters than the function");
        for (std::size_t i = 0; i < given.size(); ++i) {
            const auto found = instance_->variables.find(given[i].name);
            if (found == instance_->variables.end()) unknown("a parameter of a call is not a variable");
            inlined.variables[wanted[i].name] = found->second;
        }
    };
    const bool has_results = name != operands.begin();
    pass(has_results ? operands[0].parts : std::vector<Operand>{}, callee->results);
    pass(name + 1 != operands.end() ? (name + 1)->parts : std::vector<Operand>{}, callee->parameters);
    const Statement* outer_statement = statement_;
    Instance* outer = instance_;
    auto outer_fixups = std::move(fixups_);
    fixups_.clear();
    inline_body(inlined);
    fixups_ = std::move(outer_fixups);
    instance_ = outer;
    statement_ = outer_statement;
    --depth_;
}

void Decoder::leave() {
    if (depth_ == 0) return set(Group::control, Op::leave, Type::none);
    set(Group::control, Op::branch, Type::none);
    instance_->leaves.push_back(kernel_->code.size());
}

void Decoder::decode_statement(const Statement& statement) {
    statement_ = &statement;
    Modifiers modifiers(statement.opcode);
    modifiers_ = &modifiers;
    made_ = {};
    made_.ptx_line = statement.line;
    made_.location = statement.location;
    made_.used_bytes = statement.used_bytes;
    const auto family = families().find(modifiers.base());
    if (family == families().end()) unknown("the opcode is not known");
    if (modifiers.base() == "call") {  // inlined: leaves no instruction of its own
        if (statement.guard >= 0) unknown("a call with a predicate");
        family->second(*this);
        return;
    }
    family->second(*this);
    if (!modifiers.empty()) unknown(fmt::format("the modifier .{} is not known here", modifiers.rest()));
    if (statement.guard >= 0) {
        made_.guard = instance_->registers[static_cast<std::size_t>(statement.guard)];
        made_.guard_negated = statement.guard_negated;
    }
    kernel_->code.push_back(made_);
}

void Decoder::inline_body(Instance& instance) {
    instance_ = &instance;
    for (const Type type : instance.function->registers) instance.registers.push_back(new_slot(bytes_of(type)));
    for (const Variable& variable : instance.function->variables)
        if (variable.space != Variable::Space::shared)
            instance.variables[variable.name] = {Space::local, place_local(variable.bytes, variable.alignment)};
    for (const Statement& statement : instance.function->statements) {
        if (statement.opcode.empty())
            instance.labels[statement.label] = kernel_->code.size();
        else
            decode_statement(statement);
        instance_ = &instance;
    }
    for (const Fixup& fixup : fixups_) {
        const auto found = instance.labels.find(fixup.label);
        if (found == instance.labels.end())
            throw usage_error("PTX line {}: the label {} is not there", kernel_->code[fixup.at].ptx_line, fixup.label);
        kernel_->code[fixup.at].target = static_cast<std::uint32_t>(found->second);
    }
    for (const std::size_t at : instance.leaves)
        kernel_->code[at].target = static_cast<std::uint32_t>(kernel_->code.size());
}

void Decoder::lay_out_shared(const Function& function) {
    std::uint32_t used = 0;
    const auto place = [&](const Variable& variable, auto& table) {
        used = align_up(used, std::max(variable.alignment, 1u));
        table[variable.name] = {Space::shared, used};
        used += variable.bytes;
    };
    for (const Variable& variable : function.variables)
        if (variable.space == Variable::Space::shared) place(variable, module_variables_);
    for (const Variable& variable : module_.variables)
        if (!variable.open_ended) place(variable, module_variables_);
    kernel_->shape.static_shared_bytes = used;
    std::uint32_t alignment = 1;
    for (const Variable& variable : module_.variables)
        if (variable.open_ended) alignment = std::max(alignment, variable.alignment);
    kernel_->dynamic_shared_begin = align_up(used, alignment);
    for (const Variable& variable : module_.variables)
        if (variable.open_ended) module_variables_[variable.name] = {Space::shared, kernel_->dynamic_shared_begin};
}

std::unique_ptr<Kernel> Decoder::kernel() {
    KernelShape& shape = kernel_->shape;
    shape.name = function_.name;
    shape.target = module_.target;
    shape.most_threads = function_.most_threads;
    Instance instance;
    instance.function = &function_;
    std::uint32_t used = 0;
    for (const Variable& parameter : function_.parameters) {
        used = align_up(used, std::max(parameter.alignment, 1u));
        shape.parameter_offsets.push_back(used);
        shape.parameter_bytes.push_back(parameter.bytes);
        instance.variables[parameter.name] = {Space::parameter, used};
        used += parameter.bytes;
    }
    for (const auto& [index, name] : module_.files) {
        if (kernel_->files.size() <= static_cast<std::size_t>(index))
            kernel_->files.resize(static_cast<std::size_t>(index) + 1);
        kernel_->files[static_cast<std::size_t>(index)] = name;
    }
    lay_out_shared(function_);
    inline_body(instance);
    Instruction end;
    if (!kernel_->code.empty()) {
        end.ptx_line = kernel_->code.back().ptx_line;
        end.location = kernel_->code.back().location;
    }
    kernel_->code.push_back(end);
    find_reconvergence(*kernel_);
    return std::move(kernel_);
}

std::unique_ptr<Kernel> decode(const ParsedModule& module, const Function& function) {
    return Decoder(module, function).kernel();
}

}  // namespace lockstep::ptx

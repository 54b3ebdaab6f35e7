#include "ptx/parser.hpp"

#include <charconv>
#include <unordered_map>

#include "base/error.hpp"
#include "ptx/lexer.hpp"

namespace lockstep::ptx {

namespace {

const std::unordered_map<std::string_view, Type>& types() {
    static const std::unordered_map<std::string_view, Type> table = {
        {"pred", Type::pred}, {"b8", Type::b8},   {"b16", Type::b16},       {"b32", Type::b32}, {"b64", Type::b64},
        {"u8", Type::u8},     {"u16", Type::u16}, {"u32", Type::u32},       {"u64", Type::u64}, {"s8", Type::s8},
        {"s16", Type::s16},   {"s32", Type::s32}, {"s64", Type::s64},       {"f16", Type::f16}, {"f16x2", Type::f16x2},
        {"bf16", Type::bf16}, {"f32", Type::f32}, {"bf16x2", Type::bf16x2}, {"f64", Type::f64}};
    return table;
}

bool is_number(std::string_view word) {
    return !word.empty() && ((word[0] >= '0' && word[0] <= '9') || word[0] == '-');
}

class Parser {
  public:
    explicit Parser(std::string_view text) : tokens_(tokens_of(text)) {}

    ParsedModule module() {
        while (!done()) top_level();
        return std::move(module_);
    }

  private:
    const Token& now() const { return tokens_[at_]; }
    std::string_view word() const { return now().text; }
    std::string_view ahead(std::size_t by) const { return tokens_[std::min(at_ + by, tokens_.size() - 1)].text; }
    bool done() const { return at_ + 1 >= tokens_.size(); }
    std::string_view next() {
        if (done()) throw usage_error("PTX line {}: the text ends early", now().line);
        return tokens_[at_++].text;
    }
    bool take(std::string_view text) {
        const bool found = !done() && word() == text;
        at_ += found;
        return found;
    }
    void expect(std::string_view text) {
        if (!take(text)) throw usage_error("PTX line {}: '{}' where '{}' was expected", now().line, word(), text);
    }
    std::uint64_t integer() {
        std::string_view text = next();
        const bool negative = text[0] == '-';
        if (negative) text.remove_prefix(1);
        if (!text.empty() && text.back() == 'U') text.remove_suffix(1);
        int base = 10;
        if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
            base = 16;
            text.remove_prefix(2);
        }
        std::uint64_t value = 0;
        const auto end = std::from_chars(text.data(), text.data() + text.size(), value, base);
        if (end.ec != std::errc{} || end.ptr != text.data() + text.size())
            throw usage_error("PTX line {}: '{}' is not a number", now().line, text);
        return negative ? 0 - value : value;
    }

    void skip_braces() {
        expect("{");
        for (int depth = 1; depth > 0;) {
            const auto text = next();
            depth += text == "{" ? 1 : text == "}" ? -1 : 0;
        }
    }

    void top_level() {
        const auto text = next();
        if (text == ".version" || text == ".address_size") {
            next();
        } else if (text == ".target") {
            module_.target = next();
            while (take(",")) next();
        } else if (text == ".file") {
            const int index = static_cast<int>(integer());
            const auto name = next();
            module_.files[index] = name.substr(1, name.size() - 2);
            while (take(",")) next();
        } else if (text == ".section") {
            next();
            skip_braces();
        } else if (text == ".visible" || text == ".weak" || text == ".extern" || text == ".noreturn") {
        } else if (text == ".entry" || text == ".func") {
            function(text == ".entry");
        } else if (text == ".shared") {
            module_.variables.push_back(variable(Variable::Space::shared));
            expect(";");
        } else if (text == ".pragma") {
            next();
            expect(";");
        } else {
            throw usage_error("PTX line {}: '{}' is not known at the top level", tokens_[at_ - 1].line, text);
        }
    }

    // After the space: .align 8 .b8 name[24]
    Variable variable(Variable::Space space) {
        Variable result;
        result.space = space;
        std::uint32_t element = 0;
        while (word()[0] == '.') {
            const auto text = next();
            if (text == ".align") {
                result.alignment = static_cast<std::uint32_t>(integer());
            } else if (text == ".ptr" || text == ".const" || text == ".global") {
            } else {
                const Type type = type_of(text.substr(1));
                if (type == Type::none) throw usage_error("PTX line {}: '{}' is no type", now().line, text);
                element = static_cast<std::uint32_t>(bytes_of(type));
            }
        }
        result.alignment = std::max(result.alignment, element);
        variable_name_ = next();
        result.name = variable_name_;
        result.bytes = element;
        while (take("[")) {
            if (take("]")) {
                result.open_ended = true;
                result.bytes = 0;
            } else {
                result.bytes *= static_cast<std::uint32_t>(integer());
                expect("]");
            }
        }
        return result;
    }

    std::vector<Variable> parameters() {
        std::vector<Variable> result;
        if (!take("(")) return result;
        while (!take(")")) {
            expect(".param");
            result.push_back(variable(Variable::Space::parameter));
            take(",");
        }
        return result;
    }

    void function(bool entry) {
        Function function;
        function.entry = entry;
        if (!entry) function.results = parameters();
        function.name = next();
        function.parameters = parameters();
        while (word() != "{" && word() != ";") {
            const auto text = next();
            if (text == ".maxntid" || text == ".reqntid") {
                std::uint32_t threads = static_cast<std::uint32_t>(integer());
                while (take(",")) threads *= static_cast<std::uint32_t>(integer());
                function.most_threads = threads;
            } else if (text == ".minnctapersm" || text == ".maxnreg" || text == ".noinline") {
                if (text != ".noinline") integer();
            } else {
                throw usage_error("PTX line {}: the directive {} of a function is not known", now().line, text);
            }
        }
        if (take(";")) return;  // declared only
        function.defined = true;
        function_ = &function;
        scopes_.clear();
        location_ = {};
        next();
        body();
        module_.functions.push_back(std::move(function));
    }

    struct Scope {
        std::unordered_map<std::string_view, std::uint32_t> registers;                         // of one name
        std::unordered_map<std::string_view, std::pair<std::uint32_t, std::uint32_t>> ranges;  // prefix: first, count
        std::unordered_map<std::string_view, std::string> variables;                           // unique names
    };

    // To the closing brace, which is taken.
    void body() {
        scopes_.emplace_back();
        while (!take("}")) statement();
        scopes_.pop_back();
    }

    void statement() {
        if (take(";")) return;
        if (take("{")) return body();
        const auto text = word();
        if (text == ".reg") return declare_registers();
        if (text == ".loc") return locate();
        if (text == ".local" || text == ".shared" || text == ".param") {
            next();
            Variable made = variable(text == ".local"    ? Variable::Space::local
                                     : text == ".shared" ? Variable::Space::shared
                                                         : Variable::Space::parameter);
            expect(";");
            declare(std::move(made));
            return;
        }
        if (text == ".pragma") {
            next();
            std::string_view pragma = next();
            constexpr std::string_view used = "\"used_bytes_mask ";
            if (pragma.substr(0, used.size()) == used) {
                pragma = pragma.substr(used.size(), pragma.size() - used.size() - 1);
                const bool hexadecimal = pragma.substr(0, 2) == "0x";
                if (hexadecimal) pragma.remove_prefix(2);
                std::from_chars(pragma.data(), pragma.data() + pragma.size(), used_bytes_, hexadecimal ? 16 : 10);
            }
            expect(";");
            return;
        }
        if (ahead(1) == ":") {
            Statement label;
            label.line = now().line;
            label.label = next();
            next();
            function_->statements.push_back(std::move(label));
            return;
        }
        instruction();
    }

    void declare(Variable made) {
        const std::string unique = made.name + "@" + std::to_string(function_->variables.size());
        made.name = unique;
        scopes_.back().variables[variable_name_] = unique;
        function_->variables.push_back(std::move(made));
    }

    void declare_registers() {
        next();
        const auto name = next();
        const Type type = type_of(name.substr(1));
        if (type == Type::none) throw usage_error("PTX line {}: '{}' is no type", now().line, name);
        do {
            const auto prefix = next();
            const auto first = static_cast<std::uint32_t>(function_->registers.size());
            if (take("<")) {
                const auto count = static_cast<std::uint32_t>(integer());
                expect(">");
                function_->registers.resize(first + count, type);
                scopes_.back().ranges[prefix] = {first, count};
            } else {
                function_->registers.push_back(type);
                scopes_.back().registers[prefix] = first;
            }
        } while (take(","));
        expect(";");
    }

    void locate() {
        next();
        Location here;
        here.file = static_cast<int>(integer());
        here.line = static_cast<int>(integer());
        integer();
        if (here.line > 0) location_ = here;  // 0: the compiler could not say
        while (take(",")) {                   // where it was inlined: the innermost place is the one above
            const auto what = next();
            if (what == "function_name") {
                next();
                if (take("+")) next();
            } else {
                for (int i = 0; i < 3; ++i) integer();
            }
        }
    }

    bool find_register(std::string_view name, std::uint32_t& index) const {
        std::size_t digits = name.size();
        while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
        for (std::size_t i = scopes_.size(); i-- > 0;) {
            const Scope& scope = scopes_[i];
            if (const auto found = scope.registers.find(name); found != scope.registers.end()) {
                index = found->second;
                return true;
            }
            if (digits == name.size()) continue;
            if (const auto found = scope.ranges.find(name.substr(0, digits)); found != scope.ranges.end()) {
                std::uint32_t number = 0;
                std::from_chars(name.data() + digits, name.data() + name.size(), number);
                if (number >= found->second.second) continue;
                index = found->second.first + number;
                return true;
            }
        }
        return false;
    }

    Operand simple() {
        Operand result;
        if (take("!")) {
            result = simple();
            result.negated = !result.negated;
            return result;
        }
        const auto text = word();
        if (is_number(text)) {
            const bool floating = text.size() > 2 && text[0] == '0' &&
                                  (text[1] == 'f' || text[1] == 'F' || text[1] == 'd' || text[1] == 'D');
            if (floating && (text.size() == 10 || text.size() == 18)) {
                next();
                std::from_chars(text.data() + 2, text.data() + text.size(), result.value, 16);
                result.kind = text.size() == 10 ? Operand::Kind::single : Operand::Kind::twofold;
            } else {
                result.value = integer();
                result.kind = Operand::Kind::integer;
            }
            return result;
        }
        next();
        if (text == "_") {
            result.kind = Operand::Kind::sink;
        } else if (find_register(text, result.index)) {
            result.kind = Operand::Kind::place;
        } else if (text[0] == '%') {
            result.kind = Operand::Kind::special;
            result.name = text;
        } else {
            result.kind = Operand::Kind::symbol;
            result.name = text;
            for (std::size_t i = scopes_.size(); i-- > 0;)
                if (const auto found = scopes_[i].variables.find(text); found != scopes_[i].variables.end()) {
                    result.name = found->second;
                    break;
                }
        }
        return result;
    }

    std::int64_t displacement() {
        std::int64_t result = 0;
        while (true) {
            if (take("+") || (is_number(word()) && word()[0] == '-'))
                result += static_cast<std::int64_t>(integer());
            else
                return result;
        }
    }

    Operand operand() {
        Operand result;
        if (word() == "{" || word() == "(") {
            const auto end = next() == "{" ? "}" : ")";
            result.kind = Operand::Kind::list;
            while (!take(end)) {
                result.parts.push_back(operand());
                take(",");
            }
            return result;
        }
        if (take("[")) {
            result.kind = Operand::Kind::address;
            Operand base = simple();
            if (base.kind == Operand::Kind::integer) {
                result.offset = static_cast<std::int64_t>(base.value);
                base = {};
            }
            result.parts.push_back(std::move(base));
            result.offset += displacement();
            expect("]");
            return result;
        }
        result = simple();
        if (take("|")) {
            Operand pair;
            pair.kind = Operand::Kind::pair;
            pair.parts = {std::move(result), simple()};
            return pair;
        }
        if (result.kind == Operand::Kind::symbol) result.offset = displacement();
        return result;
    }

    void instruction() {
        Statement made;
        made.line = now().line;
        made.location = location_;
        made.used_bytes = used_bytes_;
        used_bytes_ = ~std::uint64_t{0};
        if (take("@")) {
            made.guard_negated = take("!");
            std::uint32_t index = 0;
            const auto name = next();
            if (!find_register(name, index)) throw usage_error("PTX line {}: {} is not declared", made.line, name);
            made.guard = index;
        }
        made.opcode = next();
        while (!take(";")) {
            made.operands.push_back(operand());
            if (word() != ";") expect(",");
        }
        function_->statements.push_back(std::move(made));
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    ParsedModule module_;
    Function* function_ = nullptr;
    std::string_view variable_name_;  // of the last declaration, as it stands in the text
    std::vector<Scope> scopes_;
    Location location_;
    std::uint64_t used_bytes_ = ~std::uint64_t{0};
};

}  // namespace

Type type_of(std::string_view name) {
    const auto found = types().find(name);
    return found == types().end() ? Type::none : found->second;
}

int bytes_of(Type type) {
    switch (type) {
        case Type::none:
        case Type::pred:
            return 0;
        case Type::b8:
        case Type::u8:
        case Type::s8:
            return 1;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
        case Type::bf16:
            return 2;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f64:
            return 8;
        default:
            return 4;
    }
}

ParsedModule parse(std::string_view text) {
    return Parser(text).module();
}

}  // namespace lockstep::ptx

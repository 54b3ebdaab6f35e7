// An OTF2 archive as OTF2's own library reads it. Empty in builds without it.
#pragma once

#ifdef LOCKSTEP_OTF2

#include <otf2/otf2.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep::analysis::test {

// From an enter to its leave, in nanoseconds.
struct Otf2Stretch {
    std::string region;
    std::int64_t step, start, end;
    bool operator==(const Otf2Stretch&) const = default;
};
inline std::ostream& operator<<(std::ostream& stream, const Otf2Stretch& one) {
    return stream << one.region << " of step " << one.step << ": " << one.start << " to " << one.end;
}

// Everything in an archive, by the name of the location or of the location group. Fails where events of a location go
// back in time or are not nested.
class Otf2Shows {
  public:
    explicit Otf2Shows(const std::string& folder) {
        reader_ = OTF2_Reader_Open((folder + "/traces.otf2").c_str());
        BOOST_REQUIRE(reader_ != nullptr);
        check(OTF2_Reader_SetSerialCollectiveCallbacks(reader_));
        read_definitions();
        read_events();
        read_properties();
        check(OTF2_Reader_Close(reader_));
        for (const auto& [location, open] : open_) BOOST_TEST(open.empty());
        for (const auto& [location, events] : promised_) BOOST_TEST(events_[location] == events);
    }

    std::uint64_t ticks_per_second = 0, since_1970 = 0;
    std::map<std::string, std::string> groups;  // and their nodes
    std::map<std::string, std::vector<Otf2Stretch>> stretches;
    std::map<std::string, std::vector<std::vector<std::int64_t>>> memory;  // time, allocated, reserved, peak
    std::map<std::string, OTF2_RegionRole> roles;
    std::map<std::string, std::string> properties;
    std::size_t enters = 0, leaves = 0;

  private:
    static void check(OTF2_ErrorCode code) { BOOST_REQUIRE(code == OTF2_SUCCESS); }
    static Otf2Shows& self(void* user) { return *static_cast<Otf2Shows*>(user); }

    void read_definitions() {
        OTF2_GlobalDefReader* definitions = OTF2_Reader_GetGlobalDefReader(reader_);
        BOOST_REQUIRE(definitions != nullptr);
        OTF2_GlobalDefReaderCallbacks* calls = OTF2_GlobalDefReaderCallbacks_New();
        OTF2_GlobalDefReaderCallbacks_SetClockPropertiesCallback(
            calls, [](void* user, uint64_t ticks, uint64_t offset, uint64_t length, uint64_t realtime) {
                self(user).ticks_per_second = ticks;
                self(user).since_1970 = realtime;
                self(user).length_ = length;
                BOOST_TEST(offset == 0u);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalDefReaderCallbacks_SetStringCallback(calls, [](void* user, OTF2_StringRef ref, const char* text) {
            self(user).strings_[ref] = text;
            return OTF2_CALLBACK_SUCCESS;
        });
        OTF2_GlobalDefReaderCallbacks_SetRegionCallback(
            calls, [](void* user, OTF2_RegionRef ref, OTF2_StringRef name, OTF2_StringRef, OTF2_StringRef,
                      OTF2_RegionRole role, OTF2_Paradigm, OTF2_RegionFlag, OTF2_StringRef, uint32_t, uint32_t) {
                self(user).regions_[ref] = self(user).strings_.at(name);
                self(user).roles[self(user).strings_.at(name)] = role;
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalDefReaderCallbacks_SetSystemTreeNodeCallback(
            calls,
            [](void* user, OTF2_SystemTreeNodeRef ref, OTF2_StringRef name, OTF2_StringRef, OTF2_SystemTreeNodeRef) {
                self(user).nodes_[ref] = self(user).strings_.at(name);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalDefReaderCallbacks_SetLocationGroupCallback(
            calls, [](void* user, OTF2_LocationGroupRef ref, OTF2_StringRef name, OTF2_LocationGroupType,
                      OTF2_SystemTreeNodeRef parent, OTF2_LocationGroupRef) {
                self(user).group_names_[ref] = self(user).strings_.at(name);
                self(user).groups[self(user).strings_.at(name)] = self(user).nodes_.at(parent);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalDefReaderCallbacks_SetLocationCallback(
            calls, [](void* user, OTF2_LocationRef ref, OTF2_StringRef name, OTF2_LocationType, uint64_t events,
                      OTF2_LocationGroupRef group) {
                BOOST_TEST(self(user).group_names_.count(group) == 1u);
                self(user).locations_[ref] = self(user).strings_.at(name);
                self(user).promised_[ref] = events;
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalDefReaderCallbacks_SetMetricInstanceCallback(
            calls,
            [](void* user, OTF2_MetricRef ref, OTF2_MetricRef, OTF2_LocationRef, OTF2_MetricScope, uint64_t scope) {
                self(user).instances_[ref] = self(user).group_names_.at(static_cast<OTF2_LocationGroupRef>(scope));
                return OTF2_CALLBACK_SUCCESS;
            });
        check(OTF2_Reader_RegisterGlobalDefCallbacks(reader_, definitions, calls, this));
        OTF2_GlobalDefReaderCallbacks_Delete(calls);
        std::uint64_t count = 0;
        check(OTF2_Reader_ReadAllGlobalDefinitions(reader_, definitions, &count));
    }

    void read_events() {
        for (const auto& [location, name] : locations_) check(OTF2_Reader_SelectLocation(reader_, location));
        check(OTF2_Reader_OpenDefFiles(reader_));
        check(OTF2_Reader_OpenEvtFiles(reader_));
        for (const auto& [location, name] : locations_) {
            std::uint64_t count = 0;
            OTF2_DefReader* definitions = OTF2_Reader_GetDefReader(reader_, location);
            BOOST_REQUIRE(definitions != nullptr);
            check(OTF2_Reader_ReadAllLocalDefinitions(reader_, definitions, &count));
            check(OTF2_Reader_CloseDefReader(reader_, definitions));
            BOOST_REQUIRE(OTF2_Reader_GetEvtReader(reader_, location) != nullptr);
        }
        check(OTF2_Reader_CloseDefFiles(reader_));
        OTF2_GlobalEvtReader* events = OTF2_Reader_GetGlobalEvtReader(reader_);
        BOOST_REQUIRE(events != nullptr);
        OTF2_GlobalEvtReaderCallbacks* calls = OTF2_GlobalEvtReaderCallbacks_New();
        OTF2_GlobalEvtReaderCallbacks_SetEnterCallback(
            calls, [](OTF2_LocationRef location, OTF2_TimeStamp time, void* user, OTF2_AttributeList* attributes,
                      OTF2_RegionRef region) {
                std::int64_t step = -1;
                check(OTF2_AttributeList_GetInt64(attributes, 0, &step));
                self(user).enter(location, self(user).at(location, time), region, step);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalEvtReaderCallbacks_SetLeaveCallback(
            calls,
            [](OTF2_LocationRef location, OTF2_TimeStamp time, void* user, OTF2_AttributeList*, OTF2_RegionRef region) {
                self(user).leave(location, self(user).at(location, time), region);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalEvtReaderCallbacks_SetMetricCallback(
            calls, [](OTF2_LocationRef location, OTF2_TimeStamp time, void* user, OTF2_AttributeList*,
                      OTF2_MetricRef metric, uint8_t count, const OTF2_Type*, const OTF2_MetricValue* values) {
                std::vector<std::int64_t> row = {self(user).at(location, time)};
                for (std::size_t i = 0; i < count; ++i)
                    row.push_back(static_cast<std::int64_t>(values[i].unsigned_int));
                self(user).memory[self(user).instances_.at(metric)].push_back(row);
                return OTF2_CALLBACK_SUCCESS;
            });
        OTF2_GlobalEvtReaderCallbacks_SetUnknownCallback(
            calls, [](OTF2_LocationRef, OTF2_TimeStamp, void*, OTF2_AttributeList*) {
                BOOST_ERROR("an event of another kind");
                return OTF2_CALLBACK_SUCCESS;
            });
        check(OTF2_Reader_RegisterGlobalEvtCallbacks(reader_, events, calls, this));
        OTF2_GlobalEvtReaderCallbacks_Delete(calls);
        std::uint64_t count = 0;
        check(OTF2_Reader_ReadAllGlobalEvents(reader_, events, &count));
        check(OTF2_Reader_CloseGlobalEvtReader(reader_, events));
        check(OTF2_Reader_CloseEvtFiles(reader_));
    }

    std::int64_t at(OTF2_LocationRef location, OTF2_TimeStamp time) {
        BOOST_REQUIRE(time >= last_[location]);
        BOOST_REQUIRE(time < length_);
        last_[location] = time;
        ++events_[location];
        return static_cast<std::int64_t>(time);
    }
    void enter(OTF2_LocationRef location, std::int64_t time, OTF2_RegionRef region, std::int64_t step) {
        ++enters;
        auto& all = stretches[locations_.at(location)];
        open_[location].push_back(all.size());
        all.push_back({regions_.at(region), step, time, -1});
    }
    void leave(OTF2_LocationRef location, std::int64_t time, OTF2_RegionRef region) {
        ++leaves;
        BOOST_REQUIRE(!open_[location].empty());
        Otf2Stretch& stretch = stretches[locations_.at(location)][open_[location].back()];
        open_[location].pop_back();
        BOOST_REQUIRE(stretch.region == regions_.at(region));
        stretch.end = time;
    }

    void read_properties() {
        std::uint32_t count = 0;
        char** names = nullptr;
        check(OTF2_Reader_GetPropertyNames(reader_, &count, &names));
        for (std::uint32_t i = 0; i < count; ++i) {
            char* value = nullptr;
            check(OTF2_Reader_GetProperty(reader_, names[i], &value));
            properties[names[i]] = value;
            std::free(value);
        }
        std::free(names);
    }

    OTF2_Reader* reader_ = nullptr;
    std::uint64_t length_ = 0;
    std::map<OTF2_StringRef, std::string> strings_;
    std::map<OTF2_RegionRef, std::string> regions_;
    std::map<OTF2_SystemTreeNodeRef, std::string> nodes_;
    std::map<OTF2_LocationGroupRef, std::string> group_names_;
    std::map<OTF2_LocationRef, std::string> locations_;
    std::map<OTF2_MetricRef, std::string> instances_;
    std::map<OTF2_LocationRef, std::uint64_t> promised_, events_, last_;
    std::map<OTF2_LocationRef, std::vector<std::size_t>> open_;  // stretches, outermost first
};

}  // namespace lockstep::analysis::test

#endif

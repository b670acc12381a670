// Prints records.json: keys and values as the classes of MirrorMaker 2 write them, and how they print themselves.
// java -cp "$HOME/.cache/mirrord/mirror-maker-4.3.0/*" Records.java > records.json
// What writes is package-private there, so it is called by reflection.
import java.lang.reflect.Method;
import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.*;

public class Records {
    static final List<String> lines = new ArrayList<>();

    static String hex(Object record, String method) throws Exception {
        Method writes = record.getClass().getDeclaredMethod(method);
        writes.setAccessible(true);
        return HexFormat.of().formatHex((byte[]) writes.invoke(record));
    }

    static void add(String name, Object record) throws Exception {
        lines.add("  \"" + name + "\": {\"key\": \"" + hex(record, "recordKey") + "\", \"value\": \""
            + hex(record, "recordValue") + "\", \"text\": \"" + record + "\"}");
    }

    public static void main(String[] arguments) throws Exception {
        add("heartbeat", new Heartbeat("A", "B", 1700000000000L));
        add("heartbeat of odd names", new Heartbeat("", "zürich-\uD83D\uDE80", Long.MIN_VALUE));
        add("checkpoint", new Checkpoint("billing", new TopicPartition("A.orders", 3), 1234, 1231, ""));
        add("checkpoint with metadata",
            new Checkpoint("grüppe", new TopicPartition("A.orders", Integer.MAX_VALUE), Long.MAX_VALUE, 0, "né"));
        add("offset sync", offsetSync("orders", 3, 1000, 997));
        add("offset sync of large numbers", offsetSync("t".repeat(249), Integer.MAX_VALUE, Long.MAX_VALUE, -1));
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }

    static Object offsetSync(String topic, int partition, long upstream, long downstream) throws Exception {
        var make = Class.forName("org.apache.kafka.connect.mirror.OffsetSync")
            .getDeclaredConstructor(TopicPartition.class, long.class, long.class);
        make.setAccessible(true);
        return make.newInstance(new TopicPartition(topic, partition), upstream, downstream);
    }
}
